/** A result of the control API; `/docs` of the control port describes each. */
export type Result = Record<string, any>

export interface Broker {
  /** The addresses that Kafka clients connect to. */
  bootstrapServers: string[]
  /** The address of the control API. */
  url: string
  /** Call an address of the control API that reads, such as `records`. */
  get(name: string, parameters?: Record<string, string | number | boolean>): Promise<Result>
  /** Call an address of the control API that acts, such as `fault`. */
  post(name: string, fields?: Record<string, unknown>): Promise<Result>
}

/** Start broker-core with options such as '--brokers', '3'; `stop` ends it. */
export function startBroker(...options: string[]): Promise<Broker & { stop(): Promise<void> }>

/** Control a broker that runs already; `address` is where clients reach it if its port is mapped. */
export function connectBroker(url: string, options?: { address?: string }): Promise<Broker>
