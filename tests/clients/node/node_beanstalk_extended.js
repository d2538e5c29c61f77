// node-beanstalk with what this server adds to the protocol: TLS, log-in, tags of `put`, fields, batches, sessions.
//
// Copy this file beside your program. It needs node-beanstalk 1.6 from the registry, and nothing else:
//
//   const client = new ExtendedClient({ host: 'queue.example.org', port: 11301, tls: {}, token });
//   await client.connect();
//   const { id } = await client.put({ order: 7 }, 60, 1024, 0, { idp: 'order-7', exp: 3600 });
//   await client.deleteBatch(await client.reserveBatch(100, 5));
'use strict';

const { on, once } = require('node:events');
const tls = require('node:tls');
const { BeanstalkError, Client } = require('node-beanstalk');

const CRLF = '\r\n';

// The value as part of a command line. A space or a line end in it would change the command.
function word(value) {
  if (/^[-+/;.$_()A-Za-z0-9:]+$/.test(String(value))) return String(value);
  throw new TypeError(`not a name for the server: ${JSON.stringify(value)}`);
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

// The reply with which the bytes begin, or null if more bytes belong to it. A RESERVED can have values of fields behind
// its size, and a RESERVED_BATCH has jobs behind its line: node-beanstalk reads neither.
function parse(bytes) {
  let end = bytes.indexOf(CRLF) + CRLF.length;
  if (end < CRLF.length) return null;
  const [status, ...headers] = bytes.toString('utf8', 0, end - CRLF.length).split(' ');
  const hasBody = ['OK', 'FOUND', 'RESERVED'].includes(status);
  const [size, ...values] = hasBody ? headers.splice(status === 'OK' ? 0 : 1) : [];
  const data = hasBody ? bytes.subarray(end, end + Number(size) + CRLF.length) : undefined;
  end += hasBody ? Number(size) + CRLF.length : 0;
  const jobs = [];
  while (status === 'RESERVED_BATCH' && jobs.length < Number(headers[0])) {
    const job = parse(bytes.subarray(end));
    if (!job) return null;
    jobs.push(job);
    end += job.end;
  }
  return end <= bytes.length ? { status, headers, values, data, jobs, end } : null;
}

class ExtendedClient extends Client {
  // `tls` has the options of tls.connect: `ca`, and `cert` and `key` if the server asks for them. `token` logs in.
  constructor({ tls: secure, token, ...options } = {}) {
    super(options);
    if (secure) this._conn.open = openTls.bind(this._conn, secure);
    Object.assign(this, { token, fields: [] });
  }

  async connect() {
    await super.connect();
    if (this.token !== undefined) await this.send(`auth ${this.token}`, ['AUTHENTICATED']);
  }

  async readCommandResponse() {
    let got = Buffer.alloc(0);
    for await (const [data] of on(this._conn, 'data', { close: ['close'] })) {
      got = Buffer.concat([got, data]);
      const reply = parse(got);
      if (reply) return reply;
    }
    throw new BeanstalkError('the connection is closed', 'CLOSED');
  }

  // Sends a line, with the payload of a job behind it, and returns the reply, if it is one of these.
  send(line, statuses, payload) {
    const bytes = (_, body) => Buffer.concat([Buffer.from(line + CRLF), ...(body ? [body, Buffer.from(CRLF)] : [])]);
    const handleResponse = (reply) => {
      if (statuses.includes(reply.status)) return reply;
      throw new BeanstalkError(`${reply.status} in reply to ${line.split(' ', 1)[0]}`, reply.status);
    };
    return this.dispatchCommand({ buildCommandBuffer: bytes, handleResponse }, [], payload);
  }

  // Tags are an object: { idp: 'order-7' } or 'order-7:60', con: 'customer-9:2', grp: 'g', aft: 'g', exp: 3600.
  // `existed` is whether the job was there; `state` is its state then, which may be 'deleted'.
  async put(payload, ttr = 30, priority = 1024, delay = 0, tags = {}) {
    const words = Object.entries(tags).map(([tag, value]) => ` ${word(tag)}:${word(value)}`).join('');
    const line = `put ${priority} ${delay} ${ttr} ${this.payloadToBuffer(payload).length}${words}`;
    const { headers: [id, state] } = await this.send(line, ['INSERTED'], payload);
    const initial = delay ? 'delayed' : 'ready';
    return { id: Number(id), state: state?.toLowerCase() ?? initial, existed: state !== undefined };
  }

  // From now on, jobs that are reserved have `fields`, an object of text: tube, attempts, age, trace and others.
  async reserveFields(...fields) {
    await this.say('USING', 'reserve-fields', ...fields);
    this.fields = fields;
  }

  reserveWithTimeout(seconds) { return this.reserve(`reserve-with-timeout ${word(seconds)}`); }
  reserveJob(id) { return this.reserve(`reserve-job ${word(id)}`); }
  async reserve(line = 'reserve') {
    const reply = await this.send(line, ['RESERVED', 'TIMED_OUT', 'NOT_FOUND']);
    return reply.status === 'RESERVED' ? this.job(reply) : null;
  }

  // Up to n jobs. With seconds, waits that long for the first; without, and after the seconds, the list is empty.
  async reserveBatch(n, ...seconds) {
    const line = ['reserve-batch', n, ...seconds].map(word).join(' ');
    return (await this.send(line, ['RESERVED_BATCH', 'TIMED_OUT'])).jobs.map((reply) => this.job(reply));
  }

  job({ headers: [id], data, values }) {
    const body = data.subarray(0, -CRLF.length);
    const payload = this._opt.serializer ? this._opt.serializer.deserialize(body) : body;
    return { id: Number(id), payload, fields: Object.fromEntries(this.fields.map((name, at) => [name, values[at]])) };
  }

  async deleteBatch(jobs) {
    const counts = await this.say('DELETED_BATCH', 'delete-batch', ...jobs.map((job) => job.id ?? job));
    return { deleted: Number(counts[0]), missing: Number(counts[1]) };
  }

  // Sends any other command whose reply is a line: the words behind the status, or the first of them as a number.
  // client.say('MOVED', 'move', 7, 'orders'), client.say('USING', 'reserve-mode', 'weighted')
  async say(status, ...words) { return (await this.send(words.map(word).join(' '), [status])).headers; }
  async number(status, ...words) { return Number((await this.say(status, ...words))[0]); }

  touchAll() { return this.number('TOUCHED_ALL', 'touch-all'); }
  // Keeps this client's jobs for this many seconds if the connection is lost; how many it has. Say it after each
  // connect.
  session(name, grace) { return this.number('SESSION', 'session', name, grace); }
  flushTube(tube) { return this.number('FLUSHED', 'flush-tube', tube); }
  watch(tube, ...weight) { return this.number('WATCHING', 'watch', tube, ...weight); }
}

module.exports = { ExtendedClient };
