"""Kafka's wire format: frames, messages of every version, and their translation to the group's own values.

The only package that knows kio. It opens no socket, keeps no connection and reads no clock. Importing it imports
nothing heavy: the schema of one version of one message is loaded when it is first used.
"""
