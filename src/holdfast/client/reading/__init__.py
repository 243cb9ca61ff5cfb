"""Where records come from: librdkafka or our own fetcher, and the positions of both."""
