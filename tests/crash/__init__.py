"""Faults at every step of the sink, and counts of what an independent reader sees afterwards.

Owns: queries in driver processes of their own, brokers that are killed and started again, a wire that loses answers,
the table of points and faults, the operator who ends what a killed Apache Kafka leaves hanging, the judge.
Asks: `spark_eos` through Spark and its failpoints only; brokers through their address only.
Never: looks into the sink, or takes its word for what was written.

How a test uses it (`test_matrix.py` is the longest example):

    with world("broker_core", folder) as here, drivers(folder) as pool:     # or "apache"
        driver = pool.take()                          # is warm; the next one boots in the meantime
        case = here.new_case(transactionTimeout="60s")   # input, checkpoint, output topic and prefix of its own
        driver.arm(case, case.rule("driver.after_decide"))   # `POINT[#VISIT]`; by default: hold, in micro-batch 0
        driver.start(case)
        pid = case.wait_until_held()                  # the Python process that is at the point
        driver.kill()                                 # or .pause(), .resume(); os.kill(pid, SIGKILL);
                                                      # here.restart_broker(); here.wire.losses.append(Loss(...))
        case.release()                                # the processes that are alive continue
        errors = here.run_to_end(pool.take(), [case])    # started again until it ends well
        assert here.judge([case]) == []               # nothing lost, doubled, disordered, open or unstable

`pytest tests/crash` runs on `broker_core`, with `--apache` on Apache Kafka too. What happens to queries that run on and
on while three nodes of Apache Kafka are broken under them is in `scenarios.py`.
"""
