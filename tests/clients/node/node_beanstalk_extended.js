// node-beanstalk with what this server adds to the protocol: TLS, log-in, tags of `put`, fields, batches, sessions.
// Copy this file beside your program. It needs node-beanstalk 1.6 from the registry, and nothing else:
//   const client = new ExtendedClient({ host: 'queue.example.org', port: 11301, tls: {}, token });
//   const { id } = await client.put({ order: 7 }, 60, 1024, 0, { idp: 'order-7', exp: 3600 });
//   await client.deleteBatch(await client.reserveBatch(100, 5));
'use strict';
const { on, once } = require('node:events');
const tls = require('node:tls');
const { BeanstalkError, Client } = require('node-beanstalk');

// A job or a value as part of a command line. A space or a line end in it would change the command.
function word(value) {
  const text = String(value.id ?? value);
  if (/^[!-~]+$/.test(text)) return text;
  throw new TypeError(`not a word of a command: ${JSON.stringify(text)}`);
}

// In place of the connection's own open, which knows TCP alone.
async function openTls(options, port, host = 'localhost') {
  this._state = 'opening';
  this._socket = tls.connect({ ...options, port, host }).setNoDelay(true).setKeepAlive(true);
  this._socket.on('close', () => this.emit('close')).on('data', (data) => this.emit('data', data));
  await once(this._socket, 'secureConnect').catch((error) => { this._state = 'closed'; throw error; });
  this._socket.on('error', (error) => this.emit('error', error));
  this._state = 'open';
}

// The reply with which the bytes begin, or null if more bytes belong to it. A RESERVED can have values of fields after
// its size, and a RESERVED_BATCH has jobs after its line: node-beanstalk reads neither.
function parse(bytes) {
  const start = bytes.indexOf('\r\n') + 2;
  if (start < 2) return null;
  const [status, ...headers] = bytes.toString('utf8', 0, start - 2).split(' ');
  const [size, ...values] = headers.splice({ OK: 0, FOUND: 1, RESERVED: 1 }[status] ?? headers.length);
  const reply = { status, headers, values, jobs: [], end: size === undefined ? start : start + Number(size) + 2 };
  reply.data = bytes.subarray(start, reply.end);
  while (status === 'RESERVED_BATCH' && reply.jobs.length < Number(headers[0])) {
    const job = parse(bytes.subarray(reply.end));
    if (!job) return null;
    reply.jobs.push(job);
    reply.end += job.end;
  }
  return reply.end <= bytes.length ? reply : null;
}

exports.ExtendedClient = class ExtendedClient extends Client {
  // `tls` has the options of tls.connect: `ca`, and `cert` and `key` if the server asks for them. `token` logs in.
  constructor({ tls: secure, token, ...options } = {}) {
    super(options);
    if (secure) this._conn.open = openTls.bind(this._conn, secure);
    Object.assign(this, { token, fields: [] });
  }
  async connect() {
    await super.connect();
    if (this.token !== undefined) await this.say('AUTHENTICATED', 'auth', this.token);
  }

  // Sends any command, and returns the words of its reply after the status, which must be this one:
  // client.say('SESSION', 'session', 'night', 60), client.say('FLUSHED', 'flush-tube', 'orders')
  async say(status, ...words) { return (await this.send(words, [status])).headers; }
  async send(words, statuses, payload) {
    const line = `${words.map(word).join(' ')}\r\n`;
    const parts = (body) => (body ? [line, body, '\r\n'] : [line]);
    const buildCommandBuffer = (_, body) => Buffer.concat(parts(body).map((part) => Buffer.from(part)));
    const reply = await this.dispatchCommand({ buildCommandBuffer, handleResponse: (got) => got }, [], payload);
    if (statuses.includes(reply.status)) return reply;
    throw new BeanstalkError(`${reply.status} in reply to ${words[0]}`, reply.status);
  }
  async readCommandResponse() {
    let got = Buffer.alloc(0);
    for await (const [data] of on(this._conn, 'data', { close: ['close'] })) {
      const reply = parse(got = Buffer.concat([got, data]));
      if (reply) return reply;
    }
    throw new BeanstalkError('the connection is closed', 'CLOSED');
  }

  // Tags are an object: { idp: 'order-7' } or 'order-7:60', con: 'customer-9:2', grp: 'g', aft: 'g', exp: 3600.
  // `existed` is whether the job was there; `state` is its state then, which may be 'deleted'.
  async put(payload, ttr = 30, priority = 1024, delay = 0, tags = {}) {
    const line = ['put', priority, delay, ttr, this.payloadToBuffer(payload).length];
    const words = Object.entries(tags).map((tag) => tag.join(':'));
    const { headers: [id, state] } = await this.send([...line, ...words], ['INSERTED'], payload);
    const now = state ?? (delay ? 'delayed' : 'ready');
    return { id: Number(id), state: now.toLowerCase(), existed: state !== undefined };
  }
  // From now on, jobs that are reserved have `fields`, an object of text: tube, attempts, age, trace and others.
  async reserveFields(...fields) {
    await this.say('USING', 'reserve-fields', ...fields);
    this.fields = fields;
  }
  async reserve(...words) {
    const reply = await this.send(words.length ? words : ['reserve'], ['RESERVED', 'TIMED_OUT', 'NOT_FOUND']);
    return reply.status === 'RESERVED' ? this.job(reply) : null;
  }
  reserveWithTimeout(seconds) { return this.reserve('reserve-with-timeout', seconds); }
  reserveJob(id) { return this.reserve('reserve-job', id); }
  // Up to n jobs. With seconds, waits that long for the first; without, and after the seconds, the list is empty.
  async reserveBatch(n, ...seconds) {
    const { jobs } = await this.send(['reserve-batch', n, ...seconds], ['RESERVED_BATCH', 'TIMED_OUT']);
    return jobs.map((reply) => this.job(reply));
  }
  job({ headers: [id], data, values }) {
    const body = data.subarray(0, -2);
    const payload = this._opt.serializer ? this._opt.serializer.deserialize(body) : body;
    return { id: Number(id), payload, fields: Object.fromEntries(this.fields.map((name, at) => [name, values[at]])) };
  }
  // How many were deleted, and how many were not found.
  async deleteBatch(jobs) {
    return jobs.length ? (await this.say('DELETED_BATCH', 'delete-batch', ...jobs)).map(Number) : [0, 0];
  }
};
