"""For operators: the two bounces of a migration, and `holdfast run`."""
