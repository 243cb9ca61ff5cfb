"""Who may connect and do what: TLS, SASL, users and their rules. Knows no socket and no message of Kafka's."""
