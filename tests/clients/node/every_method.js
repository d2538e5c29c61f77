// Every method of node-beanstalk against the server at $BEANSTALKD_PORT.
'use strict';

const assert = require('node:assert/strict');
const { Client, Pool } = require('node-beanstalk');

const address = { host: '127.0.0.1', port: Number(process.env.BEANSTALKD_PORT) };
const called = new Set();
const methods = [];
for (const type of [Client, Pool]) {
  for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(type.prototype))) {
    const inner = ['constructor', 'waitQueue', 'payloadToBuffer', 'readCommandResponse',
      'dispatchCommand', 'createPendingPromise', 'handleClientRelease'];
    if (typeof value !== 'function' || inner.includes(name)) continue;
    methods.push(`${type.name}.${name}`);
    type.prototype[name] = function recorded(...args) {
      called.add(`${type.name}.${name}`);
      return value.apply(this, args);
    };
  }
}

async function tubes(client) {
  assert.equal(await client.listTubeUsed(), 'default');
  assert.equal(await client.use('work'), 'work');
  assert.equal(await client.watch('work'), 2);
  assert.equal(await client.ignore('default'), true);
  assert.equal(await client.ignore('work'), false);
  assert.deepEqual(await client.listTubesWatched(), ['work']);
  assert.deepEqual(await client.listTubes(), ['default', 'work']);
}

async function jobs(client) {
  const { id, state } = await client.put({ first: true }, 100, 10, 0);
  assert.equal(state, 'ready');
  assert.deepEqual((await client.peek(id)).payload, { first: true });
  assert.equal((await client.peekReady()).id, id);
  assert.equal((await client.reserve()).id, id);
  assert.equal(await client.touch(id), true);
  assert.equal(await client.release(id, 20, 0), 'ready');
  assert.equal((await client.reserveWithTimeout(0)).id, id);
  assert.equal(await client.bury(id, 7), true);
  assert.equal((await client.peekBuried()).id, id);
  const stats = await client.statsJob(id);
  assert.equal(stats.state, 'buried');
  assert.equal(stats.tube, 'work');
  assert.equal(stats.pri, 7);
  assert.equal(await client.kickJob(id), true);
  assert.deepEqual((await client.reserveJob(id)).payload, { first: true });
  assert.equal(await client.release(id, 20, 3600), 'delayed');
  assert.equal((await client.peekDelayed()).id, id);
  assert.equal(await client.kick(10), 1);
  assert.equal(await client.delete(id), true);
  assert.equal(await client.delete(id), false);
  assert.equal(await client.peek(id), null);
  assert.equal(await client.reserveJob(id), null);
  assert.equal(await client.reserveWithTimeout(0), null);
  await assert.rejects(client.put('x'.repeat(65535)), 'quotes make it larger than the server takes');
}

async function stats(client) {
  assert.equal(await client.pauseTube('work', 60), true);
  const tube = await client.statsTube('work');
  assert.equal(tube.name, 'work');
  assert.equal(tube.pause, 60);
  assert.equal(await client.pauseTube('work', 0), true);
  assert.equal(await client.pauseTube('none', 1), false);
  assert.equal(await client.statsTube('none'), null);
  const server = await client.stats();
  assert.equal(server['total-jobs'], 1);
  assert.equal(server['current-jobs-ready'], 0);
}

async function pool() {
  const pool = new Pool({ capacity: 2, clientOptions: address });
  const client = await pool.connect();
  await client.put('pooled');
  client.releaseClient();
  await pool.disconnect();
  pool.restore();
  assert.equal(pool.getState(), 'live');
  await (await pool.connect()).disconnect(true);
  await pool.disconnect(true);
}

async function main() {
  const client = new Client(address);
  await client.connect();
  await tubes(client);
  await jobs(client);
  await stats(client);
  await client.disconnect();
  await pool();
  assert.deepEqual(methods.filter((name) => !called.has(name)), [], 'never called');
  console.log(`clients: node-beanstalk's ${methods.length} methods: good`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
