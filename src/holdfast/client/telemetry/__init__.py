"""What a consumer tells about itself: trace, log, metrics, statistics, and problems with its connections."""
