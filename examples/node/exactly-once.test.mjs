// What a reader of committed records gets when answers are lost and transactions hang.
import assert from 'node:assert/strict'
import { after, before, beforeEach, test } from 'node:test'

import kafkajs from 'kafkajs'

import { connectBroker, startBroker } from './eos-broker.mjs'

const { Kafka, Partitioners, logLevel } = kafkajs
const LIMIT = { timeout: 120_000 }

let broker, kafka, empty

before(async () => {
  broker = await startBroker('--clock', 'virtual')
  kafka = new Kafka({ brokers: broker.bootstrapServers, logLevel: logLevel.NOTHING })
  empty = (await broker.post('snapshot')).id
}, LIMIT)

after(() => broker?.stop(), LIMIT)

beforeEach(async () => {
  await broker.post('reset')
  await broker.post('restore', { id: empty })
  await broker.post('create_topic', { name: 'orders' })
}, LIMIT)

// Write one record in a transaction, and commit it.
const commit = async (transactionalId, value) => {
  const producer = kafka.producer({
    transactionalId, idempotent: true, maxInFlightRequests: 1, createPartitioner: Partitioners.DefaultPartitioner,
  })
  await producer.connect()
  try {
    const transaction = await producer.transaction()
    await transaction.send({ topic: 'orders', messages: [{ value }] })
    await transaction.commit()
  } finally {
    await producer.disconnect()
  }
}

// Return what a consumer of read_committed has got when `isDone` says so.
const consumed = async (groupId, isDone) => {
  const consumer = kafka.consumer({ groupId, readUncommitted: false, maxWaitTimeInMs: 100 })
  const values = []
  await consumer.connect()
  try {
    await consumer.subscribe({ topic: 'orders', fromBeginning: true })
    await new Promise((resolve, reject) => {
      const eachMessage = async ({ message }) => {
        values.push(message.value.toString())
        if (isDone(values)) resolve()
      }
      consumer.run({ eachMessage }).catch(reject)
    })
  } finally {
    await consumer.disconnect()
  }
  return values
}

test('kafkajs reports the lost answer of a commit as an error, and the record is there', LIMIT, async () => {
  const fault = await broker.post('fault', {
    api: 'EndTxn', transactional_id: 'shop', when: 'after_apply', action: { type: 'Disconnect' }, times: 1,
  })
  // Code that would write the record again now would double it.
  await assert.rejects(commit('shop', 'tea'), { name: 'KafkaJSConnectionClosedError' })
  assert.equal((await broker.get('wait_for_hits', { id: fault.id })).hits, 1)
  await commit('shop', 'the last one')
  assert.deepEqual(await consumed('readers', values => values.includes('the last one')), ['tea', 'the last one'])
})

test('a hanging transaction hides the records behind it until it times out', LIMIT, async () => {
  await broker.post('produce', { topic: 'orders', values: ['lost'], transactional: 'gone', end: 'open' })
  await commit('shop', 'tea')
  const hidden = await broker.get('partition', { topic: 'orders', partition: 0 })
  assert.equal(hidden.last_stable_offset, 0)
  assert.ok(hidden.high_watermark > 1)
  assert.deepEqual((await broker.get('records', { topic: 'orders', isolation: 'read_committed' })).records, [])

  await broker.post('advance', { seconds: 90 })
  assert.deepEqual(await consumed('readers', values => values.length > 0), ['tea'])
})

test('a mistake is refused with what to do', LIMIT, async () => {
  await assert.rejects(broker.post('fault', { api: 'EndTx', action: { type: 'Drop' } }), /did you mean 'EndTxn'/)
})

test('a client chooses the address that is advertised', LIMIT, async () => {
  const [own] = broker.bootstrapServers
  const mapped = own.replace('127.0.0.1', 'localhost')
  assert.notEqual(mapped, own)
  assert.deepEqual((await connectBroker(broker.url, { address: mapped })).bootstrapServers, [mapped])
  assert.deepEqual((await connectBroker(broker.url, { address: own })).bootstrapServers, [own])
})
