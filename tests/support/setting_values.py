"""Values of settings that clients send, and what Apache Kafka says of each.

`tests.conformance.test_setting_values` asks both brokers. A message that begins with "Value" or "String" follows
`Invalid value ... for configuration ...: `.
"""

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32

# Spellings of 50000, which is a valid value of all these settings.
WHOLE_KEYS = [
    (TOPIC, "retention.ms", "LONG"),
    (TOPIC, "min.insync.replicas", "INT"),
    (BROKER, "log.retention.ms", "LONG"),
    (BROKER, "log.roll.ms", "LONG"),
    (BROKER, "max.connections", "INT"),
    (BROKER, "log.cleaner.io.buffer.size", "INT"),
    (GROUP, "consumer.session.timeout.ms", "INT"),
    (CLIENT_METRICS, "interval.ms", "INT"),
]
WHOLE = ("50000", "+50000", " 50000 ", "\t50000\n", "\x0150000", "00050000", "\u06650000")
NOT_WHOLE = (
    "",
    " ",
    " 5L ",
    "x",
    "+",
    "--5",
    "50000L",
    "50000.0",
    "5e4",
    "50_000",
    "0xC350",
    "5 0",
    "50000\xa0",
    "9" * 1500,
)
BEYOND = {"INT": ("2147483648", "-2147483649"), "LONG": ("9223372036854775808", "-9223372036854775809")}

BOOLEAN_KEYS = [
    (TOPIC, "preallocate"),
    (TOPIC, "unclean.leader.election.enable"),
    (TOPIC, "errors.deadletterqueue.group.enable"),
    (BROKER, "unclean.leader.election.enable"),
    (BROKER, "log.preallocate"),
    (BROKER, "transaction.partition.verification.enable"),
    (GROUP, "share.renew.acknowledge.enable"),
    (GROUP, "errors.deadletterqueue.copy.record.enable"),
]
BOOLEAN = ("true", "TRUE", " True ", "truE\t", "false", "FALSE ")
NOT_BOOLEAN = ("", " ", " x ", "x", "yes", "no", "1", "0", "t", "on")

RATIO_KEYS = [(TOPIC, "min.cleanable.dirty.ratio"), (BROKER, "log.cleaner.min.cleanable.ratio")]
UNBOUNDED_DOUBLE_KEYS = [
    (BROKER, "log.cleaner.io.buffer.load.factor"),
    (BROKER, "log.cleaner.io.max.bytes.per.second"),
]
RATIO = (
    *("0", "1", "0.5", ".5", "0.", "+0.5", "-0.0", " 0.5 ", "0.00001", "1e-1", "1E-1", "0.5e+0", "1e-400"),
    *("0.5f", "0.5F", "0.5d", "0.5D", "1f", "NaN", "+NaN", "-NaN", "0x1p-1", "0x.8p0", "0X1.0P-2f"),
)
NOT_DOUBLE = (
    "",
    " ",
    " x ",
    "x",
    ".",
    "+",
    "e1",
    "1e",
    "0x1",
    "0.5L",
    "0.5fd",
    "1_0",
    "0,5",
    "1 0",
    "nan",
    "inf",
    "NaNf",
)
# Numbers outside of 0 to 1, and how the message shows them.
TOO_LARGE = {
    "1.1": "1.1",
    "2": "2.0",
    "5f": "5.0",
    "1e2": "100.0",
    "9999999": "9999999.0",
    "1e7": "1.0E7",
    "12345678.9": "1.23456789E7",
    "1e21": "1.0E21",
    "1e400": "Infinity",
    "0x1p9999": "Infinity",
    "Infinity": "Infinity",
}
TOO_SMALL = {"-0.1": "-0.1", "-1e-3": "-0.001", "-1e-5": "-1.0E-5", "-1e400": "-Infinity", "-Infinity": "-Infinity"}

# The lowest value of each setting, or the lowest one and one that both brokers accept.
LOWEST: dict[int, dict[str, int | tuple[int, int]]] = {
    TOPIC: {
        "compression.lz4.level": 1,
        "compression.zstd.level": -131_072,
        "delete.retention.ms": 0,
        "file.delete.delay.ms": 0,
        "flush.messages": 1,
        "flush.ms": 0,
        "index.interval.bytes": 0,
        "local.retention.bytes": -2,
        "local.retention.ms": -2,
        "max.compaction.lag.ms": 1,
        "max.decompressed.message.bytes": 1,
        "max.message.bytes": 0,
        "message.timestamp.after.max.ms": 0,
        "message.timestamp.before.max.ms": 0,
        "min.compaction.lag.ms": 0,
        "min.insync.replicas": 1,
        "remote.copy.lag.bytes": -1,
        "remote.copy.lag.ms": -1,
        "retention.ms": -1,
        "segment.bytes": 1_048_576,
        "segment.index.bytes": 4,
        "segment.jitter.ms": 0,
        "segment.ms": 1,
    },
    BROKER: {
        "background.threads": (1, 5),
        "compression.lz4.level": 1,
        "compression.zstd.level": -131_072,
        "follower.replication.throttled.rate": 0,
        "group.consumer.assignment.interval.ms": 0,
        "group.coordinator.cached.buffer.max.bytes": 524_288,
        "group.share.assignment.interval.ms": 0,
        "group.streams.assignment.interval.ms": 0,
        "leader.replication.throttled.rate": 0,
        "log.cleaner.backoff.ms": 0,
        "log.cleaner.delete.retention.ms": 0,
        "log.cleaner.io.buffer.size": 0,
        "log.cleaner.max.compaction.lag.ms": 1,
        "log.cleaner.min.compaction.lag.ms": 0,
        "log.cleaner.threads": (0, 2),
        "log.flush.interval.messages": 1,
        "log.index.interval.bytes": 0,
        "log.index.size.max.bytes": 4,
        "log.local.retention.bytes": -2,
        "log.local.retention.ms": -2,
        "log.message.timestamp.after.max.ms": 0,
        "log.message.timestamp.before.max.ms": 0,
        "log.remote.copy.lag.bytes": -1,
        "log.remote.copy.lag.ms": -1,
        "log.segment.delete.delay.ms": 0,
        "max.connection.creation.rate": (0, 1),
        "max.connections": (0, 1),
        "max.connections.per.ip": (0, 1),
        "max.decompressed.message.bytes": 1,
        "message.max.bytes": 0,
        "min.insync.replicas": 1,
        "num.io.threads": (1, 4),
        "num.network.threads": (1, 2),
        "num.recovery.threads.per.data.dir": (1, 2),
        "num.replica.fetchers": 1,
        "producer.id.expiration.ms": 1,
        "remote.fetch.max.wait.ms": 1,
        "remote.list.offsets.request.timeout.ms": 1,
        "remote.log.index.file.cache.total.size.bytes": 1,
        "remote.log.manager.copier.thread.pool.size": (1, 5),
        "remote.log.manager.copy.max.bytes.per.second": 1,
        "remote.log.manager.expiration.thread.pool.size": (1, 5),
        "remote.log.manager.fetch.max.bytes.per.second": 1,
        "remote.log.manager.follower.thread.pool.size": (1, 2),
        "remote.log.reader.threads": (1, 5),
        "replica.alter.log.dirs.io.max.bytes.per.second": 0,
        "share.coordinator.cached.buffer.max.bytes": 524_288,
    },
    GROUP: {
        "consumer.assignment.interval.ms": 0,
        "consumer.heartbeat.interval.ms": (1, 100),
        "consumer.session.timeout.ms": (1, 1000),
        "share.assignment.interval.ms": 0,
        "share.delivery.count.limit": 2,
        "share.heartbeat.interval.ms": (1, 100),
        "share.partition.max.record.locks": 100,
        "share.record.lock.duration.ms": 1000,
        "share.session.timeout.ms": (1, 1000),
        "streams.assignment.interval.ms": 0,
        "streams.heartbeat.interval.ms": (1, 5000),
        "streams.initial.rebalance.delay.ms": 0,
        "streams.num.standby.replicas": 0,
        "streams.session.timeout.ms": (1, 45_000),
    },
}

_POLICIES = "String must be one of: compact, delete"
_CODECS = "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"
_TIMESTAMPS = "String must be one of: CreateTime, LogAppendTime"
_LEVELS = "Value must be between 1 and 9 or equal to -1"
_EMPTY, _REPEATED = (
    "Configuration '{key}' values must not be empty.",
    "Configuration '{key}' values must not be duplicated.",
)
_REPLICAS = (
    "{key} must be the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
)
_RETENTION = "requirement failed: {key} must be unlimited (-1) or, greater than or equal to 1"
_AT_RUN_TIME = (
    "Invalid value org.apache.kafka.common.config.ConfigException: Invalid {name} 0 for configuration Invalid dynamic "
    "configuration"
)
_LONGEST = "{key} must be less than or equal to {maximum}"
_OVERRIDES = "Error parsing configuration property '{key}': begin 0, end -1, length "
_RESET = (
    "Invalid value `{value}` for configuration {key}. The value must be either 'earliest', 'latest' or of the format "
    "'by_duration:<PnDTnHnMn.nS>'."
)
_ASSIGNOR = "{key} '{value}' is not a registered task assignor. Registered assignors are: [sticky]."
_INTERVAL = "Invalid value {value} for {key}, interval must be between 100 and 3600000 (1 hour)"
_MATCH = "Illegal client matching pattern: {value}"


def _range(low: int, high: int) -> str:
    return f"{{key}} must be in the range {low} to {high} inclusive."


# Each setting with its values by what is said of them, None of those that are accepted.
SAID: dict[int, dict[str, dict[str | None, tuple[str, ...]]]] = {
    TOPIC: {
        "cleanup.policy": {
            None: ("", " ", "delete", " delete , compact ", "delete,delete", "compact,delete,compact"),
            _EMPTY: (",", "delete,", ",delete", "delete,,compact"),
            _POLICIES: ("DELETE", "none", "delete;compact", "delete none"),
            f"Invalid value none for configuration {{key}}: {_POLICIES}": ("none,delete", "none,"),
        },
        "compression.gzip.level": {None: ("-1", "1", "9"), _LEVELS: ("0", "10", "-2")},
        "compression.lz4.level": {None: ("17",), "Value must be no more than 17": ("18",)},
        "compression.zstd.level": {None: ("22",), "Value must be no more than 22": ("23",)},
        "compression.type": {None: ("gzip", " zstd ", "producer"), _CODECS: ("", "GZIP", "none", "lz4,gzip")},
        "internal.segment.bytes": {
            None: ("1", "0", "-1", " 20000 "),
            "Invalid value {value} for configuration {key}: Not a number of type INT": ("x", "", "2147483648"),
        },
        "leader.replication.throttled.replicas": {
            None: ("", "*", " * ", "0:1", "0:1 , 1:1", "0:1,", ",", "0:1,,1:1", "0:1,0:1"),
            f"Invalid value [{{value}}] for configuration {{key}}: {_REPLICAS}": (
                "x",
                "0",
                "0:1:2",
                "-1:1",
                "0:-1",
                "a:b",
            ),
            f"Invalid value [*, *] for configuration {{key}}: {_REPLICAS}": ("*,*",),
            f"Invalid value [0:1, *] for configuration {{key}}: {_REPLICAS}": ("0:1,*",),
        },
        "max.decompressed.message.bytes": {"Value must be no more than 2147483639": ("2147483640",)},
        "message.format.version": {"Unknown topic config name: {key}": ("3.0",)},
        "message.timestamp.type": {None: ("CreateTime ", " LogAppendTime"), _TIMESTAMPS: ("", "createtime", "x")},
        "min.insync.replicas": {"Invalid value 0 for configuration {key}: Value must be at least 1": ("-0",)},
        "remote.storage.enable": {
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
            "storage.": ("true", " TRUE "),
        },
        "retention.bytes": {None: ("-1", "-2", "-200", "0")},
        "retention.ms": {None: ("0", "-0"), "Value must be at least -1": ("-3",)},
    },
    BROKER: {
        "compression.gzip.level": {None: ("-1", "1", "9"), _LEVELS: ("0", "10")},
        "compression.type": {None: ("gzip", " zstd "), _CODECS: ("", "GZIP", "none", "lz4,gzip")},
        "config.providers": {None: ("", "x", "a,a", "a,", ",")},
        "group.consumer.assignment.interval.ms": {
            None: ("15000",),
            _LONGEST.replace("{maximum}", "group.consumer.max.assignment.interval.ms"): ("15001", " +15001 "),
        },
        "group.share.assignment.interval.ms": {
            _LONGEST.replace("{maximum}", "group.share.max.assignment.interval.ms"): ("15001",)
        },
        "group.streams.assignment.interval.ms": {
            None: ("15000",),
            _LONGEST.replace("{maximum}", "group.streams.max.assignment.interval.ms"): ("15001",),
        },
        "listener.name.plaintext.max.connections": {
            "Invalid value x for configuration max.connections: Not a number of type INT": ("x",),
            "Invalid value -1 for configuration max.connections: Value must be at least 0": ("-1",),
            _AT_RUN_TIME.replace("{name}", "max.connections"): ("0",),
        },
        "listener.name.plaintext.max.connection.creation.rate": {
            "Invalid value -1 for configuration max.connection.creation.rate: Value must be at least 0": ("-1",),
            _AT_RUN_TIME.replace("{name}", "max.connection.creation.rate"): ("0",),
        },
        "log.cleanup.policy": {
            None: ("", " ", "delete", " delete , compact "),
            _EMPTY: ("delete,", ",delete", "delete,,compact"),
            _REPEATED: (",", "delete,delete", "compact,delete,compact", "none,none"),
            _POLICIES: ("DELETE", "none", "delete;compact"),
            f"Invalid value none for configuration {{key}}: {_POLICIES}": ("none,delete", "none,"),
        },
        "log.message.timestamp.type": {None: ("CreateTime ",), _TIMESTAMPS: ("", "createtime", "x")},
        "log.retention.bytes": {None: ("-1", "-2", "-3", "0")},
        "log.retention.hours": {"Cannot update these configs dynamically: [{key}]": ("0", "-1", "5")},
        "log.retention.minutes": {"Cannot update these configs dynamically: [{key}]": ("0", "-1", "5")},
        "log.retention.ms": {None: ("-1", "-2", "-3", "-9223372036854775808", "1"), _RETENTION: ("0", "-0", " 00 ")},
        "log.roll.hours": {"Cannot update these configs dynamically: [{key}]": ("0",)},
        "log.roll.jitter.ms": {None: ("0",), "requirement failed: {key} must be greater than or equal to 0": ("-1",)},
        "log.roll.ms": {
            None: ("1",),
            "requirement failed: {key} must be greater than or equal to 1": ("0", "-0", "-1"),
        },
        "log.segment.bytes": {None: ("1048576",), "Value must be at least 1048576": ("-1", "0", "13")},
        "max.connection.creation.rate": {_AT_RUN_TIME.replace("{name}", "max.connection.creation.rate"): ("0",)},
        "max.connections": {_AT_RUN_TIME.replace("{name}", "max.connections"): ("0",)},
        "max.connections.per.ip": {
            "requirement failed: {key} can be set to zero only if {key}.overrides property is set.": ("0",)
        },
        "max.connections.per.ip.overrides": {
            None: (
                *(
                    "",
                    ",",
                    "127.0.0.1:5",
                    "127.0.0.1 : 5",
                    "127.0.0.1:5,",
                    "127.0.0.1:0",
                    "127.0.0.1:-1",
                    "::1:5",
                    ":5",
                ),
                *("a:1,b:2", "a:1,a:2", "a:+5", "localhost:5", "256.1.1.1:5"),
            ),
            f"{_OVERRIDES}1": ("x", "a:1, b"),
            f"{_OVERRIDES}9": ("127.0.0.1",),
            'For input string: "x"': ("127.0.0.1:x", "a:1, :x"),
            'For input string: ""': ("a:", "a: "),
            'For input string: "2147483648"': ("a:2147483648",),
        },
        "max.decompressed.message.bytes": {"Value must be no more than 2147483639": ("2147483640",)},
        "metric.reporters": {None: ("",), _REPEATED: ("a,a", ","), _EMPTY: ("a,",)},
    },
    GROUP: {
        "consumer.assignment.interval.ms": {None: ("15000",), _range(0, 15_000): ("15001",)},
        "consumer.heartbeat.interval.ms": {
            _range(100, 15_000): ("1", "99", " 99 ", "15001"),
            "consumer.session.timeout.ms must be greater than {key}": ("5000", "15000"),
        },
        "consumer.session.timeout.ms": {None: ("60000",), _range(1000, 60_000): ("1", "999", "+5", "60001")},
        "errors.deadletterqueue.topic.name": {
            None: ("", " ", "x", "a b", "a/b", "..", "dlq.a", "_x"),
            "{key}: DLQ topic name must not start with '__'": ("__x", " __x "),
        },
        "no.such": {"Unknown group config name: {key}": ("1",)},
        "share.assignment.interval.ms": {None: ("15000",), _range(0, 15_000): ("15001",)},
        "share.auto.offset.reset": {
            None: (
                *(
                    "earliest",
                    " latest ",
                    "by_duration:P1D",
                    "by_duration:PT1H",
                    "by_duration:pt1h",
                    "by_duration:PT0S",
                ),
                *("by_duration:PT1.5S", "by_duration:PT1.S", "by_duration:+P1D", "by_duration:-P-1D"),
                "by_duration:PT1H-30M",
            ),
            _RESET: (
                *(
                    "",
                    "x",
                    " x ",
                    "none",
                    "LATEST",
                    "by_duration:",
                    "by_duration:P",
                    "by_duration:PT",
                    "by_duration:P1DT",
                ),
                *("by_duration:-PT1H", "by_duration:P-1D", "by_duration:P1Y", "by_duration: PT1H", "BY_DURATION:PT1H"),
            ),
        },
        "share.delivery.count.limit": {None: ("10",), _range(2, 10): ("11",)},
        "share.heartbeat.interval.ms": {
            _range(100, 15_000): ("1", "99", "15001"),
            "share.session.timeout.ms must be greater than {key}": ("5000", "15000"),
        },
        "share.isolation.level": {
            None: ("read_uncommitted", " read_committed "),
            "String must be one of: read_committed, read_uncommitted": ("", "x", " x ", "READ_COMMITTED"),
        },
        "share.partition.max.record.locks": {None: ("4000",), _range(100, 4000): ("4001",)},
        "share.record.lock.duration.ms": {None: ("60000",), _range(1000, 60_000): ("60001",)},
        "share.session.timeout.ms": {None: ("60000",), _range(1000, 60_000): ("999", "60001")},
        "streams.assignment.interval.ms": {None: ("15000",), _range(0, 15_000): ("15001",)},
        "streams.assignor.name": {None: ("sticky", " sticky "), _ASSIGNOR: ("", "x", "Sticky", "highly_available")},
        "streams.heartbeat.interval.ms": {None: ("15000",), _range(5000, 15_000): ("1", "4999", "15001")},
        "streams.num.standby.replicas": {None: ("1", "2"), "{key} must be less than or equal to 2": ("3", "99")},
        "streams.rack.aware.assignment.tags": {
            None: ("", "a", "a b", "a,b", " a , b "),
            _EMPTY: ("a,", ",a"),
            "{key} must not contain duplicate tag keys.": ("a,a", ",", "a,,"),
        },
        "streams.session.timeout.ms": {None: ("60000",), _range(45_000, 60_000): ("1", "44999", "60001")},
    },
    CLIENT_METRICS: {
        "interval.ms": {
            None: ("100", "3600000", "+500"),
            _INTERVAL: ("-1", "0", "99", " 99 ", "3600001"),
            _INTERVAL.replace("{value}", "5"): ("+5", "005", "\u0665"),
        },
        "match": {
            None: (
                *("", "client_id=a", " client_id = a ", "client_id=a,client_id=b", "client_id=a,client_id=a"),
                *(
                    "client_source_port=1",
                    "client_instance_id=x",
                    "client_software_version=.*",
                    "client_source_address=x",
                ),
                *(
                    "client_id=a{2}",
                    "client_id=a}",
                    "client_id=]",
                    "client_id=[{]",
                    "client_id=\\{",
                ),
                *("client_id=(?<x>a)", "client_id=(?>a)", "client_id=a++", "client_id=[a&&b]", "client_id=a(?i)b"),
                *("client_id=\\p{L}", "client_id=\\Z", "client_id=\\z"),
            ),
            _EMPTY: (",", "client_id=a,", ",client_id=a", "client_id=a,,client_id=b"),
            _MATCH: (
                *("client_id", "client_id=", "=x", "client_id=a=b", "CLIENT_ID=a", "nosuch=x"),
                *("client_id=(", "client_id=[", "client_id=*", "client_id=a**", "client_id={", "client_id=a{"),
                *("client_id=\\y", "client_id=(?P<x>a)"),
            ),
            _MATCH.replace("{value}", "client_id=a{2"): ("client_id=a{2,3}",),
        },
        "metrics": {None: ("", "a", "a,a", "*", "a,*", " a , b ", "a b"), _EMPTY: (",", "a,", ",a")},
        "no.such": {"Unknown client metrics configuration: {key}": ("1",)},
    },
}
