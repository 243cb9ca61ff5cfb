"""What a consumer tells about itself: trace, log, metrics, statistics, and troubles of its connections."""
