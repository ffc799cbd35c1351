// The adapter for kafkajs, which is installed in KAFKAJS_FOLDER.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const require = createRequire(process.env.KAFKAJS_FOLDER + '/')
const { CompressionTypes, Kafka, Partitioners, logLevel } = require('kafkajs')

const DEADLINE_MS = 60_000
const COPY_DEADLINE_MS = 150_000
const BATCH = 10
const OUT = 'copy of '

const say = answer => process.stdout.write(JSON.stringify(answer) + '\n')

const connect = at =>
  new Kafka({
    brokers: at.split(','), logLevel: logLevel.NOTHING, connectionTimeout: 5_000, requestTimeout: 10_000,
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 8 },
  })

const makeProducer = async (at, transactionalId, timeoutMs) => {
  const producer = connect(at).producer({
    ...(transactionalId && { transactionalId, transactionTimeout: timeoutMs }), idempotent: true, maxInFlightRequests: 1,
    createPartitioner: Partitioners.DefaultPartitioner, retry: { retries: 8, maxRetryTime: 500 },
  })
  await producer.connect()
  return producer
}

const makeConsumer = (at, groupId, isolation, maxWaitMs, own = {}) =>
  connect(at).consumer({
    groupId, readUncommitted: isolation === 'read_uncommitted', maxWaitTimeInMs: maxWaitMs,
    sessionTimeout: 6_000, heartbeatInterval: 500, retry: { retries: 8, maxRetryTime: 500, restartOnFailure: async () => true }, ...own,
  })

// Wait for a condition; the scenario gets the reason for a timeout.
const until = async (probe, story, deadlineMs = DEADLINE_MS) => {
  const end = Date.now() + deadlineMs
  while (!(await probe())) {
    if (Date.now() > end) throw Object.assign(new Error(story()), { name: 'TimeoutError' })
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

const producers = new Map()
let groups = 0

const committedOffsets = async (at, group, topic) => {
  const admin = connect(at).admin()
  await admin.connect()
  try {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    return new Map(found.partitions.map(each => [each.partition, [Number(each.offset), each.metadata]]))
  } finally {
    await admin.disconnect()
  }
}

const commands = {
  version: () => ['kafkajs', require('kafkajs/package.json').version],

  // The first transaction() sends InitProducerId: it begins at once, and `begin` returns it.
  producer: async ({ at, name, transactional_id: id, timeout_ms: timeoutMs, compression }) => {
    const producer = await makeProducer(at, id, timeoutMs)
    producers.set(name, { producer, next: null, current: null, compression: CompressionTypes[compression?.toUpperCase()] })
  },

  init: async ({ name }) => {
    const held = producers.get(name)
    held.next = await held.producer.transaction()
  },

  begin: async ({ name }) => {
    const held = producers.get(name)
    held.current = held.next ?? (await held.producer.transaction())
    held.next = null
  },

  send: async ({ name, topic, partition, values }) => {
    const { producer, current, compression } = producers.get(name)
    const [sent] = await (current ?? producer).send({
      topic, compression, acks: -1, messages: values.map(value => ({ value, partition })),
    })
    return values.map((_, index) => Number(sent.baseOffset) + index)
  },

  offsets: ({ name, group, topic, offsets }) =>
    producers.get(name).current.sendOffsets({
      consumerGroupId: group,
      topics: [{ topic, partitions: offsets.map(([partition, offset, metadata]) => ({ partition, offset: String(offset), metadata })) }],
    }),

  commit: ({ name }) => producers.get(name).current.commit(),
  abort: ({ name }) => producers.get(name).current.abort(),

  close: async ({ name }) => {
    const { producer } = producers.get(name)
    producers.delete(name)
    await producer.disconnect()
  },

  read: async ({ at, topic, partitions, isolation, max_wait_ms: maxWaitMs, until: last, at_least: atLeast, quiet_s: quietS, tell, fetch_bytes: fetchBytes }) => {
    // kafkajs cannot read without a group.
    const consumer = makeConsumer(
      at, `kafkajs-reader-${process.pid}-${groups++}`, isolation, maxWaitMs, { maxBytesPerPartition: fetchBytes })
    const records = []
    const ended = new Set()
    let lastMs = Date.now()
    await consumer.connect()
    try {
      await consumer.subscribe({ topic, fromBeginning: true })
      await consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          const value = message.value.toString()
          records.push([partition, Number(message.offset), value])
          lastMs = Date.now()
          if (value === last) ended.add(partition)
          if (records.length === tell) say({ note: tell })
        },
      })
      await until(
        () => last === null
          ? records.length >= atLeast && Date.now() - lastMs > quietS * 1000
          : ended.size === partitions,
        () => `read ${JSON.stringify(records)}`,
      )
      // The note comes first, because closing takes as long as the last fetch.
      say({ note: records.length })
    } finally {
      await consumer.disconnect()
    }
    return records
  },

  committed: async ({ at, group, topic, partition }) => {
    const found = (await committedOffsets(at, group, topic)).get(partition)
    // kafkajs returns no metadata where it is empty.
    return found === undefined || found[0] < 0 ? null : [found[0], found[1] ?? '', null]
  },

  copy: async ({
    at, group, transactional_id: id, source, partitions, target, abort_every: abortEvery, until: last,
    hold_at: holdAt, stop_after: stopAfter, session_ms: sessionMs,
  }) => {
    const counts = { commits: 0, aborts: 0, failures: 0 }
    const done = new Set()
    const lasts = new Map()
    const next = new Map()
    let count = 0
    let producer = null
    let crashed = true
    let consumer = null
    const isEnough = () => stopAfter > 0 && counts.commits >= stopAfter
    const transfer = async (partition, messages) => {
      producer ??= await makeProducer(at, id, 10_000)
      const transaction = await producer.transaction()
      for (const message of messages) {
        if (message.value.toString() === last) lasts.set(partition, Number(message.offset))
        else await transaction.send({ topic: target, messages: [{ value: OUT + message.value, partition }] })
      }
      const end = Number(messages.at(-1).offset) + 1
      await transaction.sendOffsets({
        consumerGroupId: group, topics: [{ topic: source, partitions: [{ partition, offset: String(end), metadata: '' }] }],
      })
      count += 1
      if (count === holdAt) {
        say({ note: count })
        // The test kills this process when it reads the note.
        await new Promise(() => {})
      }
      if (abortEvery && count % abortEvery === 0) {
        await transaction.abort()
        counts.aborts += 1
        return false
      }
      await transaction.commit()
      counts.commits += 1
      return true
    }
    const start = async () => {
      await consumer?.disconnect().catch(() => {})
      crashed = false
      consumer = makeConsumer(at, group, 'read_committed', 100, { sessionTimeout: sessionMs })
      // An error that kafkajs considers fatal ends the consumer; an application makes a new one.
      consumer.on(consumer.events.CRASH, ({ payload }) => { crashed ||= !payload.restart })
      await consumer.connect()
      await consumer.subscribe({ topic: source, fromBeginning: true })
      await consumer.run({
        autoCommit: false,
        eachBatchAutoResolve: false,
        eachBatch: async ({ batch, resolveOffset, isStale, isRunning }) => {
          // While kafkajs processes the former leader's records, it fetches them again from a new leader: skip them.
          const messages = batch.messages.filter(each => Number(each.offset) >= (next.get(batch.partition) ?? 0)).slice(0, BATCH)
          if (!messages.length) resolveOffset(batch.lastOffset())
          if (!messages.length || isStale() || !isRunning() || isEnough()) return
          try {
            if (await transfer(batch.partition, messages)) {
              resolveOffset(messages.at(-1).offset)
              next.set(batch.partition, Number(messages.at(-1).offset) + 1)
              if (lasts.has(batch.partition)) done.add(batch.partition)
            } else {
              consumer.seek({ topic: source, partition: batch.partition, offset: messages[0].offset })
            }
          } catch (failure) {
            // After any error, a new producer ends the former one's transaction, and the group has the committed offsets.
            counts.failures += 1
            const old = producer
            producer = null
            await old?.disconnect().catch(() => {})
            producer = await makeProducer(at, id, 10_000)
            await (await producer.transaction()).abort()
            const [offset] = (await committedOffsets(at, group, source)).get(batch.partition)
            if (lasts.has(batch.partition) && offset > lasts.get(batch.partition)) done.add(batch.partition)
            next.set(batch.partition, Math.max(offset, 0))
            consumer.seek({ topic: source, partition: batch.partition, offset: String(Math.max(offset, 0)) })
          }
        },
      })
    }
    try {
      await until(async () => {
        if (crashed) await start().catch(() => { crashed = true })
        return done.size === partitions || isEnough()
      }, () => `copied ${JSON.stringify(counts)}, done with ${[...done]}`, COPY_DEADLINE_MS)
    } finally {
      await consumer?.disconnect()
      await producer?.disconnect()
    }
    return counts
  },
}

for await (const line of createInterface({ input: process.stdin })) {
  const { do: command, ...request } = JSON.parse(line)
  try {
    say({ answer: (await commands[command](request)) ?? null })
  } catch (failure) {
    // The error after too many retries contains the reason.
    say({ error: failure.type ?? failure.cause?.type ?? failure.name, message: String(failure.message) })
  }
}
process.exit(0)
