// A broker-core for tests, and its control API: a client without dependencies.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

const TIMEOUT_MS = 60_000
const CONTROLLED = /is controlled at (\S+)/

/**
 * Start broker-core with options such as '--brokers', '3'.
 *
 * The result has `bootstrapServers`; `get(name, parameters)` and `post(name, fields)`, which call the addresses of the
 * control API; and `stop()`. BROKER_COMMAND replaces the command; its words are separated by spaces.
 */
export const startBroker = async (...options) => {
  const [program, ...first] = (process.env.BROKER_COMMAND ?? 'broker-core').split(' ')
  const started = spawn(program, [...first, '--port', '0', '--control-port', '0', '--log-level', 'WARNING', ...options], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const failed = once(started, 'error').then(([error]) => {
    throw new Error(`${program} cannot be started: pip install '.[control]'`, { cause: error })
  })
  const url = await Promise.race([controlUrl(started), failed])
  const stop = async () => {
    if (started.exitCode === null && started.kill()) await once(started, 'exit')
  }
  try {
    return { ...(await connectBroker(url)), stop }
  } catch (error) {
    await stop()
    throw error
  }
}

/**
 * Control a broker-core that runs already, such as one in a container, by the address of its control API.
 *
 * If the container's port is mapped, `address` is what Kafka clients connect to: `localhost:32768`.
 */
export const connectBroker = async (url, { address } = {}) => {
  const call = async (name, path, request) => {
    const answer = await fetch(`${url}/${path}`, { ...request, signal: AbortSignal.timeout(TIMEOUT_MS) })
    const body = await answer.text()
    if (!answer.ok) throw new Error(`${name} was refused (${answer.status}): ${body}`)
    return JSON.parse(body)
  }
  const get = (name, parameters = {}) => call(name, `${name}?${new URLSearchParams(parameters)}`)
  const post = (name, fields = {}) =>
    call(name, name, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(fields),
    })
  if (address) await post('advertise', { addresses: address })
  return { bootstrapServers: (await get('about')).bootstrap_servers.split(','), url, get, post }
}

const controlUrl = async started => {
  for await (const line of createInterface({ input: started.stdout })) {
    const found = CONTROLLED.exec(line)
    if (found) return found[1]
  }
  throw new Error('broker-core has ended; its errors are above')
}
