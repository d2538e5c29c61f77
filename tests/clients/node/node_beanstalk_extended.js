// node-beanstalk with what this server adds to the protocol: TLS, log-in, tags of `put`, batches, weights, whole tubes.
//
// Copy this file beside your program. It needs node-beanstalk 1.6 from the registry, and nothing else:
//
//   const client = new ExtendedClient({ host: 'queue.example.org', port: 11301, tls: {}, token });
//   await client.connect();
//   const { id } = await client.put({ order: 7 }, 60, 1024, 0, { idp: 'order-7', exp: 3600 });
//   await client.deleteBatch(await client.reserveBatch(100, 5));
'use strict';

const tls = require('node:tls');
const { BeanstalkError, Client } = require('node-beanstalk');

const WORD = /^[-+/;.$_()A-Za-z0-9:]+$/;
const CRLF = '\r\n';

// The value as part of a command line. A space or a line end in it would change the command.
function word(value) {
  if (!WORD.test(String(value))) throw new TypeError(`not a name for the server: ${JSON.stringify(value)}`);
  return String(value);
}

function expect(response, status, line) {
  if (response.status === status) return response.headers;
  throw new BeanstalkError(`${response.status} in reply to ${line.split(' ', 1)[0]}`, response.status);
}

// In place of the connection's own open, which knows TCP alone.
function openTls(options, port, host = 'localhost') {
  this._state = 'opening';
  return new Promise((resolve, reject) => {
    const fail = (error) => { this._state = 'closed'; reject(error); };
    this._socket = tls.connect({ ...options, port, host }, () => {
      this._socket.off('error', fail).on('error', (error) => this.emit('error', error));
      this._state = 'open';
      resolve();
    });
    this._socket.setNoDelay(true).setKeepAlive(true).on('error', fail);
    this._socket.on('close', () => this.emit('close')).on('data', (data) => this.emit('data', data));
  });
}

class ExtendedClient extends Client {
  // `tls` has the options of tls.connect: `ca`, and `cert` and `key` if the server asks for them. `token` logs in.
  constructor({ tls: secure, token, ...options } = {}) {
    super(options);
    if (secure) this._conn.open = openTls.bind(this._conn, secure);
    this.token = token;
    this.fields = [];
  }

  async connect() {
    await super.connect();
    if (this.token !== undefined) await this.say(`auth ${this.token}`, 'AUTHENTICATED');
  }

  // Sends a line, and the payload of a job with it, and returns the words behind the status of the reply.
  say(line, status, payload) {
    return this.dispatchCommand({
      buildCommandBuffer: (_, body) =>
        Buffer.concat([line, CRLF, ...(body ? [body, CRLF] : [])].map((part) => Buffer.from(part))),
      handleResponse: (response) => expect(response, status, line),
    }, [], payload);
  }

  // Tags are an object: { idp: 'order-7' } or 'order-7:60', con: 'customer-9:2', grp: 'g', aft: 'g', exp: 3600.
  // `existed` is whether the job was there; `state` is its state then, which may be 'deleted'.
  async put(payload, ttr = 30, priority = 1024, delay = 0, tags = {}) {
    const words = Object.entries(tags).map(([tag, value]) => ` ${word(tag)}:${word(value)}`).join('');
    const line = `put ${priority} ${delay} ${ttr} ${this.payloadToBuffer(payload).length}${words}`;
    const [id, state] = await this.say(line, 'INSERTED', payload);
    const initial = delay ? 'delayed' : 'ready';
    return { id: Number(id), state: state?.toLowerCase() ?? initial, existed: state !== undefined };
  }

  // From now on, jobs that are reserved have `fields`: tube, attempts, timeouts, releases, age, pri, ttr, trace; text.
  async reserveFields(...fields) {
    await this.say(['reserve-fields', ...fields.map(word)].join(' '), 'USING');
    this.fields = fields;
  }

  reserve() { return this.fields.length ? this.reserveOne('reserve') : super.reserve(); }
  reserveJob(id) { return this.fields.length ? this.reserveOne(`reserve-job ${Number(id)}`) : super.reserveJob(id); }
  reserveWithTimeout(seconds) {
    const line = `reserve-with-timeout ${Number(seconds)}`;
    return this.fields.length ? this.reserveOne(line) : super.reserveWithTimeout(seconds);
  }

  reserveOne(line) {
    return this.raw(line, async (words, take) => {
      const [status, ...values] = await words();
      if (status === 'TIMED_OUT' || status === 'NOT_FOUND') return null;
      expect({ status }, 'RESERVED', line);
      return this.job(values, take);
    });
  }

  // Up to n jobs. With seconds, waits that long for the first; without, and after the seconds, the list is empty.
  reserveBatch(n, seconds) {
    const line = `reserve-batch ${n}${seconds === undefined ? '' : ` ${seconds}`}`;
    return this.raw(line, async (words, take) => {
      const [status, count] = await words();
      if (status === 'TIMED_OUT') return [];
      expect({ status }, 'RESERVED_BATCH', line);
      const jobs = [];
      while (jobs.length < Number(count)) jobs.push(await this.job((await words()).slice(1), take));
      return jobs;
    });
  }

  async job([id, size, ...values], take) {
    const body = await take(() => Number(size) + CRLF.length);
    const payload = this._opt.serializer ? this._opt.serializer.deserialize(body) : body;
    return { id: Number(id), payload, fields: Object.fromEntries(this.fields.map((name, at) => [name, values[at]])) };
  }

  // Sends a line, and lets `read` read the reply, which node-beanstalk cannot: the words of lines, and bytes.
  async raw(line, read) {
    const [turn, done] = this.waitQueue();
    await turn;
    let got = Buffer.alloc(0);
    let wake;
    let closed = false;
    const onData = (data) => { got = Buffer.concat([got, data]); wake?.(); };
    const onClose = () => { closed = true; wake?.(); };
    const take = async (length) => {
      while (length() > got.length) {
        if (closed) throw new BeanstalkError('the connection is closed', 'CLOSED');
        await new Promise((resolve) => { wake = resolve; });
      }
      const taken = got.subarray(0, length() - CRLF.length);
      got = got.subarray(length());
      return taken;
    };
    const words = async () => {
      const taken = await take(() => (got.includes(CRLF) ? got.indexOf(CRLF) + CRLF.length : Infinity));
      return taken.toString().split(' ');
    };
    this._conn.on('data', onData).on('close', onClose);
    try {
      await this._conn.write(line + CRLF);
      return await read(words, take);
    } finally {
      this._conn.off('data', onData).off('close', onClose);
      done();
    }
  }

  async deleteBatch(jobs) {
    const ids = jobs.map((job) => Number(job.id ?? job)).join(' ');
    const [deleted, missing] = await this.say(`delete-batch ${ids}`, 'DELETED_BATCH');
    return { deleted: Number(deleted), missing: Number(missing) };
  }

  // Those with a number for an answer: how many jobs, or tubes.
  async number(line, status) { return Number((await this.say(line, status))[0]); }
  touchAll() { return this.number('touch-all', 'TOUCHED_ALL'); }
  // Keeps this client's jobs for so many seconds if the connection is lost; how many it has. Say it after each connect.
  session(name, grace) { return this.number(`session ${word(name)} ${Number(grace)}`, 'SESSION'); }
  flushTube(tube) { return this.number(`flush-tube ${word(tube)}`, 'FLUSHED'); }
  flushBuried(tube) { return this.number(`flush-buried ${word(tube)}`, 'FLUSHED'); }
  watch(tube, weight = 1) { return this.number(`watch ${word(tube)}${weight === 1 ? '' : ` ${weight}`}`, 'WATCHING'); }

  // How this client chooses among its tubes: fifo, weighted or weighted-fair.
  async reserveMode(mode) { await this.say(`reserve-mode ${word(mode)}`, 'USING'); }
  async move(id, tube) { await this.say(`move ${Number(id)} ${word(tube)}`, 'MOVED'); }
  async reprioritize(id, pri) { await this.say(`reprioritize ${Number(id)} ${Number(pri)}`, 'REPRIORITIZED'); }
}

module.exports = { ExtendedClient };
