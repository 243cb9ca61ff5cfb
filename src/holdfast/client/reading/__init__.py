"""Where records come from: one `Reader` in two forms, librdkafka's and our own, over one book of positions."""
