"""The code blocks of the documentation's pages that need Spark, run by `python -m tests.support.spark_pages`.

They run in a process of their own: these pages set the JVM's working directory, and other tests start a JVM with
failpoints.
"""

import os
import sys
import tempfile
import traceback
from pathlib import Path

from broker_core import EmbeddedBroker
from tests.support.document_blocks import run_page, runs, watched_queries
from tests.support.documents import Page, pages
from tests.support.spark_eos.spark_session import build_session, worker_environment


def pages_with_spark() -> list[Page]:
    """Return the pages whose blocks need a session."""
    return [page for page in pages() if page.needs == "spark" and any(runs(block) for block in page.blocks)]


def main() -> int:
    """Run the pages one after another; the exit status is 1 if one failed."""
    os.environ.update(worker_environment())
    failed = []
    with tempfile.TemporaryDirectory() as root:
        # Each page has a broker of its own. A client of the last page's may still look for it at a port where the JVM
        # now waits for a Python worker, which Spark then reports as "Authentication failed".
        session = build_session(
            "docs", {"spark.local.dir": f"{root}/spark", "spark.python.unix.domain.socket.enabled": "true"}
        )
        jvm = session._jvm
        assert jvm is not None
        local = jvm.org.apache.hadoop.fs.Path("file:///").getFileSystem(session._jsc.hadoopConfiguration())
        for number, page in enumerate(pages_with_spark()):
            folder = Path(root) / str(number)
            for name in ("data", "tmp"):
                (folder / name).mkdir(parents=True)
            os.chdir(folder)
            local.setWorkingDirectory(jvm.org.apache.hadoop.fs.Path(str(folder)))
            jvm.java.lang.System.setProperty("user.dir", str(folder))  # the folder of the checkpoints
            try:
                with EmbeddedBroker(topics=page.topics) as kafka, watched_queries():
                    run_page(page, folder, kafka.bootstrap_servers, {"spark": session.newSession()})
            except BaseException:
                traceback.print_exc()
                failed.append(page.name)
            print(f"{page.name}: {'failed' if page.name in failed else 'passed'}", flush=True)
        session.stop()
        os.chdir("/")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
