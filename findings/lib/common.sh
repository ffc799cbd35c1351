# Sourced by the scripts of findings/: a temporary folder, packages of pinned versions, and one or two nodes of Apache Kafka.
# Everything is in the folder, which is removed at the end together with the nodes.
set -euo pipefail
unset PYTHONPATH
lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$(command -v "${PYTHON:-python3}")
[ "${python:0:1}" = / ] || python=$PWD/$python
folder=$(mktemp -d)
nodes=()
finish() {
    local node
    # Before bash 4.4 an empty array counts as unset.
    for node in ${nodes[@]+"${nodes[@]}"}; do
        # A broker that shuts down in order would wait for its controller, and a paused one for its script.
        kill -KILL "$node" 2>/dev/null || true
        wait "$node" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap finish EXIT
cd "$folder"

# python_with PACKAGE==VERSION ...: make `python` a Python that has these packages, and the functions of seen.py.
python_with() {
    echo "installing $*" >&2
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

# jars_of FOLDER GROUP:ARTIFACT:VERSION ...: make the folder, and put these jars and those that they need into its folder jars.
jars_of() {
    local into=$1 each group artifact version
    shift
    mkdir -p "$into"
    {
        echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        echo '<groupId>findings</groupId><artifactId>jars</artifactId><version>1</version><dependencies>'
        for each in "$@"; do
            IFS=: read -r group artifact version <<<"$each"
            echo "<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version>"
            # Of this one 4.4.0 was never published; only the tools need it.
            echo '<exclusions><exclusion><groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId></exclusion></exclusions></dependency>'
        done
        echo '</dependencies></project>'
    } >"$into/pom.xml"
    (cd "$into" && mvn --quiet --batch-mode -Dstyle.color=never dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=jars >maven.log 2>&1)
}

# apache_kafka VERSION [SETTING=VALUE ...]: start a node, and set BOOTSTRAP to its address.
apache_kafka() {
    local version=$1 ports
    shift
    jars_of . "org.apache.kafka:kafka_2.13:$version"
    ports=($(free_ports 2))
    BOOTSTRAP="127.0.0.1:${ports[0]}"
    export BOOTSTRAP
    cat >common.properties <<SETTINGS
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:${ports[1]}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=16777216
$(printf '%s\n' "$@")
SETTINGS
    start_node 1 broker,controller "${ports[0]}" ",CONTROLLER://127.0.0.1:${ports[1]}" --standalone
}

# kfake: start franz-go's broker of 18 September 2026, which needs Go and no Java, and set BOOTSTRAP to its address.
kfake() {
    mkdir kfake
    cat >kfake/go.mod <<'GO'
module kfake

go 1.26

require github.com/twmb/franz-go v1.22.3

require github.com/twmb/franz-go/pkg/kfake v0.0.0-20260918054303-01f206a7e32c
GO
    cat >kfake/main.go <<'GO'
package main

import (
	"os"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(os.Args[1], []byte(cluster.ListenAddrs()[0]), 0o600); err != nil {
		panic(err)
	}
	select {}
}
GO
    (cd kfake && go mod tidy && go build -o program .) >kfake.log 2>&1
    kfake/program address >>kfake.log 2>&1 &
    nodes+=($!)
    for _ in $(seq 240); do
        [ -s address ] && break
        sleep 0.5
    done
    BOOTSTRAP=$(cat address)
    export BOOTSTRAP
}

# second_node: start another node beside it, a broker, and set SECOND to its process id.
second_node() {
    start_node 2 broker "$(free_ports 1)" ""
    SECOND=${nodes[1]}
    export SECOND
}

free_ports() {
    "$python" -c '
import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(each.getsockname()[1] for each in sockets))' "$1"
}

# start_node NUMBER ROLES PORT OTHER_LISTENERS [FORMAT_OPTION ...]
start_node() {
    local java=(java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$folder/jars/*")
    local settings=node-$1.properties
    cat common.properties - >"$settings" <<SETTINGS
node.id=$1
process.roles=$2
listeners=PLAINTEXT://127.0.0.1:$3$4
advertised.listeners=PLAINTEXT://127.0.0.1:$3
log.dirs=$folder/data${1#1}
SETTINGS
    "${java[@]}" kafka.tools.StorageTool format "${@:5}" --cluster-id AAAAAAAAAAAAAAAAAAAAAA --config "$settings" >format.log 2>&1
    "${java[@]}" kafka.Kafka "$settings" >"node-$1.log" 2>&1 &
    nodes+=($!)
    for _ in $(seq 240); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$3") 2>/dev/null; then
            return
        fi
        sleep 0.5
    done
    echo "Apache Kafka did not start:" && tail -n 20 "node-$1.log" && exit 2
}
