# Sourced by the scripts of findings/: a temporary folder, packages of pinned versions, and one node of Apache Kafka.
# Everything is in the folder, which is removed at the end together with the node.
set -euo pipefail
unset PYTHONPATH
lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$(command -v "${PYTHON:-python3}")
[ "${python:0:1}" = / ] || python=$PWD/$python
folder=$(mktemp -d)
node=
finish() {
    if [ -n "$node" ]; then
        kill "$node" 2>/dev/null || true
        wait "$node" 2>/dev/null || true
    fi
    rm -rf "$folder"
}
trap finish EXIT
cd "$folder"

# python_with PACKAGE==VERSION ...: make `python` a Python that has these packages, and the functions of seen.py.
python_with() {
    "$python" -m venv "$folder/venv"
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-input "$@"
    export PATH="$folder/venv/bin:$PATH" PYTHONPATH="$lib" PYSPARK_PYTHON="$folder/venv/bin/python"
}

# quietly COMMAND ...: run it, and show what it says on standard error (Java's warnings, mostly) only if it fails.
quietly() {
    "$@" 2>errors.log || {
        local status=$?
        tail -n 40 errors.log
        return "$status"
    }
}

# apache_kafka VERSION [SETTING=VALUE ...]: start a node, and set BOOTSTRAP to its address.
apache_kafka() {
    local version=$1 ports jars
    shift
    cat >pom.xml <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>findings</groupId>
  <artifactId>node</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>$version</version>
      <!-- Of this one 4.4.0 was never published; only the tools need it. -->
      <exclusions><exclusion><groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId></exclusion></exclusions>
    </dependency>
  </dependencies>
</project>
POM
    mvn --quiet --batch-mode -Dstyle.color=never dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$folder/jars" >maven.log 2>&1
    jars="$folder/jars/*"
    ports=($("$python" -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(each.getsockname()[1] for each in sockets))'))
    BOOTSTRAP="127.0.0.1:${ports[0]}"
    export BOOTSTRAP
    cat >server.properties <<SETTINGS
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://$BOOTSTRAP,CONTROLLER://127.0.0.1:${ports[1]}
advertised.listeners=PLAINTEXT://$BOOTSTRAP
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:${ports[1]}
log.dirs=$folder/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=16777216
$(printf '%s\n' "$@")
SETTINGS
    local java=(java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$jars")
    "${java[@]}" kafka.tools.StorageTool format --standalone --cluster-id AAAAAAAAAAAAAAAAAAAAAA --config server.properties >format.log 2>&1
    "${java[@]}" kafka.Kafka server.properties >node.log 2>&1 &
    node=$!
    for _ in $(seq 240); do
        if (exec 3<>"/dev/tcp/127.0.0.1/${ports[0]}") 2>/dev/null; then
            return
        fi
        sleep 0.5
    done
    echo "Apache Kafka did not start:" && tail -n 20 node.log && exit 2
}
