"""Running a job as a member of a group: `holdfast pipeline run`, its progress, and the scene that `make run` plays."""
