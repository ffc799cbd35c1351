"""The layers of the packages, and what each package may use from outside: the tables of the architecture test.

Add a package here when it is added, moved or split; `python -m tests.support.architecture` prints the graph.
"""

from tests.support.architecture import PACKAGES


def _packages(package: str, *names: str) -> frozenset[str]:
    return frozenset(f"{package}.{name}" for name in names)


_CORE_BASE = _packages(
    "broker_core",
    "errors",
    "types",
    "ports",
    "properties",
    "java_values",
    "settings",
    "config",
)
_CORE_FORMATS = _packages("broker_core", "wire", "records")
_CORE_RULES = _packages("broker_core", "log", "coordinator", "security")
_CORE_RUNTIMES = _packages("broker_core", "server", "simulation")
_BELOW_RUNTIMES = _CORE_BASE | _CORE_FORMATS | _CORE_RULES | {"broker_core.broker"}
_JAVA_STORES = frozenset({"broker_core.java_stores"})
_RECORDS = frozenset({"broker_core.records"})

_EOS_BASE = _packages(
    "spark_eos",
    "backoff",
    "errors",
    "failpoints",
    "metrics",
    "open_transaction",
    "options",
    "readable",
    "runtime",
)
# What a driver decides by, without Kafka, Spark or a clock.
_EOS_DECIDED = _packages("spark_eos", "sink.decision", "sink.messages", "sink.naming", "sink.prepared")
_EOS_SINK = _EOS_DECIDED | _packages("spark_eos", "sink", "sink.protocol")
_EOS_TOOLS = _packages(
    "spark_eos",
    "codec",
    "client",
    "column_libraries",
    "message_first",
    "metrics_export",
    "sent_to_tasks",
    "spark_api",
    "transactions",
    "worker_memory",
)
# All that spark_eos may import from the broker core: names and error codes, the batch format, and for its client the
# layout of messages and the formats of key stores.
_SHARED_BASE = _packages("broker_core", "errors", "types")
_SHARED = _SHARED_BASE | _RECORDS

# Each layer: its packages (or single modules), and for each the packages it may import, all of them in layers below it.
# A module that is not named here belongs to the package around it, whose parts must not have cyclic imports.
LAYERS: tuple[dict[str, frozenset[str]], ...] = (
    {
        "broker_core.errors_page": frozenset(),
    },
    {
        "broker_core.errors": _packages("broker_core", "errors_page"),
        "broker_core.cipher_suites": frozenset(),
        "broker_core.decision_table": frozenset(),
        # Finds the features, so that no package has to import them.
        "broker_core.installed": frozenset(),
        "broker_core.version": frozenset(),
        "broker_core.features.__init__": frozenset(),
        "broker_core.jaas": frozenset(),
        "broker_core.java_values": frozenset(),
        "broker_core.properties": frozenset(),
        "spark_eos.backoff": frozenset(),
        "spark_eos.readable": frozenset(),
        "spark_eos.errors": _packages("broker_core", "errors_page"),
        "spark_eos.spark_api": frozenset(),
        "spark_eos.options.write_options": frozenset(),
    },
    {
        "spark_eos.sent_to_tasks": _packages("spark_eos", "errors") | {"broker_core.__version__"},
        "broker_core.types": _packages("broker_core", "errors"),
        "broker_core.ports": _packages("broker_core", "errors"),
        "broker_core.settings": _packages("broker_core", "errors", "java_values"),
    },
    {
        "broker_core.java_stores": _packages("broker_core", "types"),
        "spark_eos.sink.naming": _packages("broker_core", "types"),
        "spark_eos.options.catalog": _packages("broker_core", "types") | _packages("spark_eos", "errors"),
        "spark_eos.open_transaction": _SHARED_BASE,
    },
    {
        "spark_eos.options.key_stores": _packages("spark_eos", "errors", "options.catalog")
        | {"broker_core.cipher_suites"},
        "broker_core.config": _packages("broker_core", "errors", "properties", "settings"),
        "spark_eos.sink.prepared": _packages("broker_core", "types") | _packages("spark_eos", "open_transaction"),
    },
    {
        "spark_eos.sink.decision": _packages("spark_eos", "errors", "open_transaction", "readable", "sink.prepared")
        | _SHARED_BASE,
        "spark_eos.sink.messages": _packages("spark_eos", "errors", "sink.prepared", "spark_api"),
        "broker_core.wire": _CORE_BASE,
        "broker_core.records": _CORE_BASE,
        "spark_eos.column_libraries": _packages("spark_eos", "errors"),
        "spark_eos.failpoints": frozenset(),
        "spark_eos.metrics": frozenset(),
        "spark_eos.options.metrics": _packages("spark_eos", "errors"),
        "spark_eos.options": frozenset(),
        "spark_eos.options.oauth": _packages("spark_eos", "errors", "options.catalog", "options.key_stores"),
        "spark_eos.options.logins": _packages("spark_eos", "errors") | {"broker_core.jaas"},
        "spark_eos.options.positions": _packages("spark_eos", "errors", "options.catalog") | _SHARED_BASE,
    },
    {
        "broker_core.log": _CORE_BASE | _RECORDS | {"broker_core.decision_table"},
        "broker_core.coordinator": _CORE_BASE | _RECORDS | _packages("broker_core", "decision_table", "installed"),
        "broker_core.security": _CORE_BASE | {"broker_core.jaas"},
    },
    {
        "spark_eos.options.client": _packages(
            "spark_eos",
            "errors",
            "options.catalog",
            "options.key_stores",
            "options.logins",
            "options.oauth",
        )
        | _SHARED_BASE
        | {"broker_core.jaas"},
    },
    {
        "broker_core.broker": _CORE_BASE | _CORE_FORMATS | _CORE_RULES | {"broker_core.installed"},
        "spark_eos.runtime": _packages("spark_eos", "errors", "options.client"),
        "spark_eos.options.sink": _packages(
            "spark_eos", "errors", "options.catalog", "options.client", "options.metrics"
        )
        | _SHARED,
        "spark_eos.options.operator_commands": _packages("spark_eos", "options.client", "readable") | _SHARED_BASE,
        "spark_eos.options.source": _packages(
            "spark_eos", "errors", "options.catalog", "options.client", "options.metrics", "options.positions"
        )
        | _SHARED_BASE,
    },
    {
        "broker_core.server": _BELOW_RUNTIMES | _JAVA_STORES | _packages("broker_core", "cipher_suites", "installed"),
        "broker_core.simulation": _packages("broker_core", "ports"),
        "spark_eos.codec": _EOS_BASE | _SHARED | _packages("spark_eos", "sent_to_tasks"),
    },
    {
        "spark_eos.worker_memory": _packages("spark_eos", "runtime", "sent_to_tasks"),
        # The commit is decided without a connection, a clock or a log.
        "spark_eos.sink.protocol": _packages(
            "spark_eos", "backoff", "errors", "open_transaction", "options.sink", "options.operator_commands"
        )
        | _EOS_DECIDED
        | _SHARED_BASE,
        "spark_eos.message_first": _packages("spark_eos", "errors"),
        "spark_eos.metrics_export": _packages("spark_eos", "errors", "metrics", "options.metrics", "runtime")
        | _SHARED_BASE,
        # The producer seals and splits the codec's batches; the codec knows nothing of connections.
        # Both sides read the same messages, so their layout is measured in one place.
        # Key stores have the same formats on both sides, too.
        "spark_eos.client": _EOS_BASE
        | _SHARED
        | _packages("spark_eos", "codec")
        | _packages("broker_core", "java_stores", "wire"),
    },
    {
        "spark_eos.transactions": _EOS_BASE | _packages("spark_eos", "client", "sink.naming") | _SHARED_BASE,
    },
    {
        "broker_core.features.schema_registry": _CORE_BASE | _packages("broker_core", "broker", "server", "version"),
        "broker_core.testing": _BELOW_RUNTIMES | _CORE_RUNTIMES | {"broker_core.installed"},
        "spark_eos.sink": _EOS_BASE
        | (_EOS_TOOLS - {"spark_eos.transactions"})
        | _EOS_DECIDED
        | _SHARED
        | {"spark_eos.sink.protocol"},
        "spark_eos.source": _EOS_BASE | _EOS_TOOLS | _SHARED,
    },
    {
        "broker_core.features.delegation_tokens": _CORE_BASE
        | _CORE_FORMATS
        | _packages("broker_core", "broker", "security"),
        "broker_core.features.share_groups": _CORE_BASE
        | _CORE_FORMATS
        | _packages("broker_core", "broker", "coordinator", "log", "security"),
        "broker_core.features.quotas": _CORE_BASE | _CORE_FORMATS | _packages("broker_core", "broker", "security"),
        "broker_core.features.recording": _CORE_BASE
        | _CORE_FORMATS
        | _packages("broker_core", "broker", "server", "testing"),
        "broker_core.embedded": _BELOW_RUNTIMES | _CORE_RUNTIMES | _packages("broker_core", "installed", "testing"),
    },
    {
        "broker_core.report_page": _CORE_BASE | _packages("broker_core", "broker", "testing"),
    },
    {
        # The HTTP form of the embedded broker's public methods.
        "broker_core.features.control": _CORE_BASE
        | _packages(
            "broker_core",
            "broker",
            "server",
            "testing",
            "embedded",
            "report_page",
            "installed",
            "version",
        ),
    },
    {
        "broker_core.__main__": _BELOW_RUNTIMES
        | _CORE_RUNTIMES
        | _packages("broker_core", "__version__", "errors_page", "installed", "testing"),
        "broker_core.aio": _BELOW_RUNTIMES | _CORE_RUNTIMES | _packages("broker_core", "embedded", "testing"),
        # A command ends transactions by the same rules as the sink.
        "spark_eos.admin": _EOS_BASE
        | _EOS_TOOLS
        | _EOS_SINK
        | _SHARED
        | _packages("broker_core", "errors_page", "properties", "__version__"),
        "spark_eos.progress_listener": _packages("spark_eos", "metrics_export") | _SHARED_BASE,
        "spark_eos.datasource": _EOS_BASE | _EOS_TOOLS | _EOS_SINK | _packages("spark_eos", "source") | _SHARED,
    },
    {
        "broker_core.pytest_plugin": _CORE_BASE
        | _packages("broker_core", "aio", "embedded", "wire", "broker", "testing", "report_page"),
        # The public names, imported on first use.
        "broker_core.__init__": _BELOW_RUNTIMES
        | _CORE_RUNTIMES
        | _packages("broker_core", "embedded", "features.recording", "testing", "version"),
        "pyspark_eos_kafka": _packages("spark_eos", "datasource"),
    },
    {
        "spark_eos.__init__": _packages(
            "spark_eos", "datasource", "errors", "options.write_options", "progress_listener", "sent_to_tasks", "sink"
        )
        | {"broker_core.__version__"},
    },
)
ALLOWED = {package: allowed for layer in LAYERS for package, allowed in layer.items()}

_NONE: frozenset[str] = frozenset()
_CORE_REAL = _packages(
    "broker_core",
    "server",
    "testing",
    "features",
    "embedded",
    "aio",
    "report_page",
    "pytest_plugin",
    "__main__",
)
_CORE_CHANCE = _CORE_REAL | {"broker_core.simulation"}
# What a client and the sink receive instead of looking it up themselves.
_RUNTIME = _packages("spark_eos", "runtime")
_EOS_REAL = _packages(
    "spark_eos", "client", "sink", "source", "admin", "runtime", "metrics_export", "progress_listener"
)
# Metrics are read by a thread that sends them.
_EOS_METRICS = _packages("spark_eos", "metrics")
_EOS_COLUMNS = _packages("spark_eos", "codec", "column_libraries", "sink", "source", "datasource")

# Libraries, clocks, randomness, files, sockets and threads, and the packages that may use them. The longest name
# counts. A third-party module that is not listed is no dependency; a standard module that is not listed may be used
# anywhere.
OUTSIDE: dict[str, frozenset[str]] = {
    # Kafka's messages, and the codecs and checksums of its batches.
    "kafka": _packages("spark_eos", "client"),
    "kafka.partitioner": _packages("broker_core", "testing"),
    "kafka.version": _packages("broker_core", "wire.library"),
    "kafka.protocol": _packages("broker_core", "wire") | _packages("spark_eos", "client"),
    "cramjam": _packages("broker_core", "records.compression"),
    "crc32c": _packages("broker_core", "records", "log") | _packages("spark_eos", "codec", "sink"),
    "scramp": _packages("broker_core", "security"),
    # An extra that serves the metrics; nothing else may need it.
    "prometheus_client": _packages("broker_core", "server.metrics_endpoint") | _packages("spark_eos", "metrics_export"),
    "opentelemetry": _packages("spark_eos", "metrics_export"),
    # Extras that serve the console's pages on loopback, the control port, and the schema registry.
    **dict.fromkeys(
        ("starlette", "uvicorn"),
        _packages("spark_eos", "admin.console.server")
        | _packages("broker_core", "features.control", "features.schema_registry.server", "server.http_thread"),
    ),
    # Parsers of the schema registry's three kinds of schemas.
    "avro": _packages("broker_core", "features.schema_registry.avro_schemas"),
    **dict.fromkeys(("jsonschema", "referencing"), _packages("broker_core", "features.schema_registry.json_schemas")),
    "google.protobuf": _packages(
        "broker_core",
        "features.schema_registry.protobuf_compatibility",
        "features.schema_registry.protobuf_parser",
        "features.schema_registry.protobuf_schemas",
        "features.schema_registry.protobuf_text",
    ),
    **dict.fromkeys(
        ("proto_schema_parser", "antlr4"), _packages("broker_core", "features.schema_registry.protobuf_parser")
    ),
    # An extra that serves the control port, with an API that describes itself.
    **dict.fromkeys(("fastapi", "pydantic", "anyio"), _packages("broker_core", "features.control")),
    # Extras of the command line: progress and colors, the full-screen view, and the completion of shells.
    "rich": _packages("spark_eos", "admin.output", "admin.watch_screen"),
    "textual": _packages("spark_eos", "admin.watch_screen"),
    "shtab": _packages("spark_eos", "admin.command"),
    # The names in certificates.
    "asn1crypto": _packages("broker_core", "security"),
    # Extras that read Java's key stores, sign assertions and for Amazon MSK, and speak Kerberos.
    "cryptography": _packages("broker_core", "java_stores.pkcs12") | _packages("spark_eos", "client.oauth_endpoint"),
    "botocore": _packages("spark_eos", "client.msk_iam"),
    "gssapi": _packages("spark_eos", "client.sasl_logins"),
    # The regular expressions of Kafka's requests are RE2's.
    "re2": _packages("broker_core", "coordinator.patterns"),
    # Spark and Arrow columns.
    "pyspark": _packages("spark_eos", "datasource", "progress_listener", "sink", "source", "spark_api")
    | {"pyspark_eos_kafka"},
    # The pickler that Spark uses.
    "pyspark.cloudpickle": _packages("spark_eos", "sent_to_tasks"),
    "pyarrow": _EOS_COLUMNS | _packages("broker_core", "testing"),
    "pandas": _packages("broker_core", "testing"),
    # The client receives what becomes columns.
    "numpy": _EOS_COLUMNS | _packages("spark_eos", "client.response_reader"),
    # Test tools.
    "pytest": _packages("broker_core", "pytest_plugin"),
    "confluent_kafka": _packages("broker_core", "pytest_plugin"),
    # Sockets.
    **dict.fromkeys(
        ("socket", "ssl", "selectors", "socketserver", "http", "urllib.request"),
        _CORE_REAL | _packages("spark_eos", "client", "metrics_export"),
    ),
    "select": _CORE_REAL,
    # Sets options of the sockets that Spark has opened.
    "socket": _CORE_REAL | _packages("spark_eos", "client", "metrics_export", "sink.spark_sockets"),
    # Other threads and processes.
    **dict.fromkeys(
        ("asyncio", "threading", "_thread", "concurrent", "multiprocessing", "queue", "subprocess", "sched"),
        _CORE_REAL | _EOS_REAL,
    ),
    "threading.Lock": _CORE_REAL | _EOS_REAL | _EOS_METRICS,
    "signal": _CORE_REAL,
    # Clocks. What has a client takes its runtime's. The process that waits for a driver's end imports nothing else.
    "time": _CORE_REAL
    | _RUNTIME
    | _packages("spark_eos", "admin.output", "metrics_export", "progress_listener", "sink.driver_end"),
    # Formatting a time does not read a clock.
    **dict.fromkeys(("time.gmtime", "time.strftime"), _CORE_REAL | _packages("spark_eos", "readable")),
    "datetime": _CORE_REAL | _EOS_REAL,
    # Randomness. uuid.UUID is a plain value; only the functions that create one draw random bytes.
    "random": _CORE_CHANCE | _RUNTIME,
    "random.Random": _CORE_CHANCE | _RUNTIME | _packages("spark_eos", "sink.task.partitioning"),
    "secrets": _CORE_REAL | _RUNTIME | _packages("spark_eos", "admin"),
    **dict.fromkeys(("uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7", "uuid.getnode"), _CORE_REAL | _EOS_REAL),
    # Files and the process's environment.
    "os": _CORE_REAL
    | _RUNTIME
    | _packages(
        "spark_eos", "client.msk_iam", "client.tls", "message_first", "sink", "sent_to_tasks", "admin", "metrics_export"
    ),
    # Credentials that are renewed in threads belong to one process.
    "os.getpid": _CORE_REAL | _RUNTIME | _packages("spark_eos", "client.msk_iam", "metrics_export"),
    **dict.fromkeys(
        ("builtins.open", "io.open", "io.FileIO", "pathlib", "shutil", "glob", "mmap", "fileinput", "sqlite3"),
        _CORE_REAL,
    ),
    # A driver's commits and the sweep at its end exclude each other.
    "fcntl": _CORE_REAL | _packages("spark_eos", "sink.driver_end"),
    # The connection settings for a secured cluster are in a file, as for Kafka's own tools; so is a token.
    "pathlib.Path": _CORE_REAL
    | _packages(
        "spark_eos",
        "admin",
        "client.oauth_endpoint",
        "client.oauth_tokens",
        "client.tls",
        "metrics_export",
        "sink.incarnation",
    ),
    # Pure paths are text.
    **dict.fromkeys(("pathlib.PurePath", "pathlib.PurePosixPath"), frozenset(PACKAGES)),
    # Python's TLS reads keys and certificates from files only, so those given as text are written to one. A file is
    # what a worker and its watchdog share.
    "tempfile": _CORE_REAL | _packages("spark_eos", "client", "metrics_export", "sink.detached_process"),
    # Ways around this table; the public packages import a name on first use, and features
    # are found.
    **dict.fromkeys(("importlib", "runpy", "builtins.__import__", "builtins.eval", "builtins.exec"), _NONE),
    # A user's function that returns tokens is imported by its name.
    "importlib.util.find_spec": _packages("broker_core", "installed"),
    "importlib.import_module": frozenset(
        {"broker_core.__init__", "broker_core.installed", "spark_eos.__init__", "spark_eos.spark_api"}
    )
    | _packages("spark_eos", "client.oauth_tokens"),
    "importlib.metadata": _CORE_REAL | _EOS_REAL | _packages("broker_core", "errors_page"),
    # The files of pages, what is declared as data, Kafka's versions, and the anchors of errors.
    "importlib.resources": _packages(
        *("spark_eos", "admin.timeline_page", "admin.console.pages", "admin.parsers", "client.error_table"),
        *("client.needed_apis", "metrics", "options.catalog"),
    )
    | _packages(
        *("broker_core", "errors_page", "features.control.routing", "report_page", "server.metrics_endpoint"),
        *("settings.catalog", "wire"),
    ),
}
