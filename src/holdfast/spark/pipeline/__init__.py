"""Running a job as a member of a group: `holdfast pipeline run`, its progress, and the demo that `make run` shows."""
