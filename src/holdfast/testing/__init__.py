"""Real things to test against: Apache Kafka, its tools, members of the other clients, and checkers of their logs.

Rule: importing this package imports nothing else. Ask for the part you need, for example `holdfast.testing.kafka`.
"""
