"""The settings of a Kafka consumer: Java's names and librdkafka's. What is in neither list is a typing mistake.

Taken from kafka-clients 4.1 (ConsumerConfig and what it includes) and librdkafka 2.16, without what is for producers
and brokers.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

import confluent_kafka as ck

from holdfast.client.config.errors import CONFIG_INVALID, ConfigError

JAVAS = frozenset(
    """
    allow.auto.create.topics auto.commit.interval.ms auto.offset.reset bootstrap.servers check.crcs
    client.dns.lookup client.id client.rack connections.max.idle.ms default.api.timeout.ms enable.auto.commit
    enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id
    group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes isolation.level
    key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partition.assignment.strategy receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms
    sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes session.timeout.ms
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites
    ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
    ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
    ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type value.deserializer
    """.split()  # noqa: SIM905 - as lines of a file they would be 190
)

LIBRDKAFKAS = frozenset(
    """
    api.version.fallback.ms api.version.request api.version.request.timeout.ms auto.commit.enable
    broker.address.family broker.address.ttl broker.version.fallback consume.callback.max.messages
    coordinator.query.interval.ms debug enable.auto.offset.store enable.partition.eof enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.sparse.connections enable.ssl.certificate.verification
    fetch.error.backoff.ms fetch.message.max.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.protocol.type
    https.ca.location https.ca.pem log.connection.close log.queue log.thread.name log_level max.in.flight
    max.in.flight.requests.per.connection message.copy.max.bytes metadata.broker.list metadata.request.timeout.ms
    plugin.library.paths queued.max.messages.kbytes queued.min.messages receive.message.max.bytes
    reconnect.backoff.jitter.ms sasl.kerberos.keytab sasl.kerberos.principal sasl.mechanisms
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.password
    sasl.username socket.blocking.max.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location
    ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.crl.location ssl.curves.list ssl.engine.id
    ssl.engine.location ssl.key.location ssl.key.pem ssl.providers ssl.sigalgs.list statistics.interval.ms
    topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    """.split()  # noqa: SIM905 - as lines of a file they would be 190
)


def did_you_mean(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """A suggestion for the user; empty if no known name is similar. Case does not matter."""
    by_lower = {each.lower(): each for each in sorted(known)}
    near = difflib.get_close_matches(name.lower(), list(by_lower), 1, cutoff=0.75)
    return f"Did you mean {prefix}{by_lower[near[0]]}?" if near else ""


def as_config_error(error: ck.KafkaException, config: Mapping[str, object]) -> Exception:
    """librdkafka's refusal of a setting, in its own words and with advice. Other errors are returned unchanged."""
    refused = error.args[0] if error.args else None
    if not isinstance(refused, ck.KafkaError) or refused.code() != ck.KafkaError._INVALID_ARG:
        return error
    said = refused.str().rstrip()  # some of its texts end with a new line
    key = next((key for key in config if f'"{key}"' in said), None)
    if key is None or "No such configuration property" not in said:
        do = "See librdkafka's documentation of this setting."
    elif key in JAVAS:
        do = "It is a setting of Java's consumer that has no counterpart here: leave it out."
    else:
        do = did_you_mean(key, JAVAS | LIBRDKAFKAS) or "Check its spelling in librdkafka's documentation."
    return ConfigError(CONFIG_INVALID, f"{said}.", do)
