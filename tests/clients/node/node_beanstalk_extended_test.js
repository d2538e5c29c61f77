// Each addition of node_beanstalk_extended.js: plain, then with a token, then with a token in TLS.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const { ExtendedClient } = require('./node_beanstalk_extended.js');

const token = process.env.BEANSTALKD_TOKEN;
const ca = fs.readFileSync(process.env.BEANSTALKD_CA);

async function tags(client) {
  const put = (payload, words) => client.put(payload, 60, 1024, 0, words);
  const first = await put('a', { idp: 'order-7', exp: 3600 });
  const again = await client.put('a', 60, 7, 0, { idp: 'order-7' }); // more urgent: the reply has the priority, too
  assert.deepEqual(again, { id: first.id, state: 'ready', existed: true });
  assert.equal(first.existed, false);
  await assert.rejects(put('x', { idp: 'a key\r\nwith spaces' }), TypeError);
  await put('one at a time', { con: 'customer-9' });
  await put('one at a time', { con: 'customer-9' });
  assert.equal((await client.reserveBatch(10)).length, 2, 'of three');
  assert.deepEqual(await client.say('TOUCHED_ALL', 'touch-all'), ['2']);
  assert.deepEqual(await client.say('SESSION', 'session', 'night', 0), ['2']);
  assert.deepEqual(await client.say('FLUSHED', 'flush-tube', 'work'), ['3']);
  const member = await put('member', { grp: 'import' });
  const after = await put('after', { aft: 'import' });
  assert.equal((await client.reserveBatch(10))[0].id, member.id);
  assert.equal(await client.delete(member.id), true);
  assert.equal((await client.reserveWithTimeout(5)).id, after.id);
  await client.delete(after.id);
}

async function batches(client) {
  const large = { large: 'x'.repeat(50000) }; // more than comes at once
  const ids = [];
  for (let n = 0; n < 5; n += 1) ids.push((await client.put(n === 1 ? large : { n })).id);
  const jobs = await client.reserveBatch(3, 5);
  assert.deepEqual(jobs.map(({ id }) => id), ids.slice(0, 3));
  assert.deepEqual([jobs[1].payload, jobs[2].payload], [large, { n: 2 }]);
  assert.deepEqual(await client.deleteBatch([...jobs, ids[4], 10 ** 9]), [4, 1]);
  // Commands that are sent together have their replies in order.
  const touch = ['TOUCHED_ALL', 'touch-all'];
  const [rest, none] = await Promise.all([client.reserveBatch(3), client.reserveBatch(3), client.say(...touch)]);
  assert.deepEqual([rest.map(({ id }) => id), none], [[ids[3]], []]);
  assert.deepEqual(await client.deleteBatch(rest), [1, 0]);
  assert.deepEqual(await client.deleteBatch(await client.reserveBatch(3)), [0, 0]);
  assert.deepEqual(await client.reserveBatch(3, 0), []);
  await assert.rejects(client.reserveBatch(0), { code: 'BAD_FORMAT' });
}

async function fields(client) {
  await client.reserveFields('tube', 'attempts', 'ttr');
  const ids = [];
  for (const payload of ['one 9', 'two']) ids.push((await client.put(payload, 77)).id);
  const job = await client.reserveWithTimeout(5);
  assert.deepEqual(job, { id: ids[0], payload: 'one 9', fields: { tube: 'work', attempts: '1', ttr: '77' } });
  await client.release(job.id);
  const jobs = await client.reserveBatch(2);
  assert.deepEqual(jobs.map(({ fields: { attempts } }) => attempts), ['2', '1']);
  assert.equal(await client.reserveWithTimeout(0), null);
  assert.equal(await client.reserveJob(10 ** 9), null);
  await client.release(ids[1]);
  assert.equal((await client.reserve()).fields.attempts, '2');
  await client.deleteBatch(jobs);
  await client.reserveFields();
}

async function tubes(client) {
  assert.deepEqual(await client.say('WATCHING', 'watch', 'other', 5), ['2']);
  await client.say('USING', 'reserve-mode', 'weighted');
  await client.say('USING', 'reserve-mode', 'fifo');
  const twin = await client.put('a', 60, 1024, 0, { idp: 'twin' });
  await client.say('REPRIORITIZED', 'reprioritize', twin.id, 7);
  await client.say('MOVED', 'move', twin.id, 'other');
  const stats = await client.statsJob(twin.id);
  assert.deepEqual([stats.pri, stats.tube], [7, 'other']);
  const second = await client.put('a', 60, 1024, 0, { idp: 'twin' });
  await assert.rejects(client.say('MOVED', 'move', second.id, 'other'), { code: 'EXISTS' });
  const reserved = await client.reserveJob(second.id);
  await client.bury(reserved.id);
  assert.deepEqual(await client.say('FLUSHED', 'flush-buried', 'work'), ['1']);
  assert.deepEqual(await client.say('FLUSHED', 'flush-tube', 'other'), ['1']);
}

async function connected(options) {
  const client = new ExtendedClient({ host: '127.0.0.1', ...options });
  await client.connect();
  return client;
}

async function allOf(options) {
  const client = await connected(options);
  await client.use('work');
  await client.watch('work');
  await client.ignore('default');
  await tags(client);
  await batches(client);
  await fields(client);
  await tubes(client);
  await client.disconnect();
}

// What a new connection uses and watches by itself needs no right.
async function rightsToOneTube(options) {
  const client = await connected(options);
  await client.use('mail');
  await client.watch('mail');
  assert.deepEqual(await client.listTubesWatched(), ['mail']);
  await client.put({ to: 'ann' });
  const jobs = await client.reserveBatch(2, 5);
  assert.deepEqual([jobs.map(({ payload }) => payload), await client.deleteBatch(jobs)],
    [[{ to: 'ann' }], [1, 0]]);
  await assert.rejects(client.say('USING', 'use', 'orders'), { code: 'FORBIDDEN' });
  await client.disconnect();
}

async function main() {
  const port = (name) => Number(process.env[name]);
  await allOf({ port: port('BEANSTALKD_PORT') });
  await allOf({ port: port('BEANSTALKD_GUARDED_PORT'), token });
  await allOf({ port: port('BEANSTALKD_TLS_PORT'), tls: { ca }, token });
  await rightsToOneTube({ port: port('BEANSTALKD_GUARDED_PORT'), token: process.env.BEANSTALKD_TOKEN_FOR_MAIL });
  const [cert, key] = ['CERTIFICATE', 'KEY'].map((name) => fs.readFileSync(process.env[`BEANSTALKD_${name}`]));
  const mutual = { port: port('BEANSTALKD_MUTUAL_PORT'), tls: { ca, cert, key } };
  const [certified, observer] = await Promise.all([connected(mutual), connected(mutual)]);
  assert.equal((await certified.put('x')).state, 'ready');
  // A connection that is lost ends the wait for a batch.
  await certified.watch('empty');
  await certified.ignore('default');
  const waiting = certified.reserveBatch(1, 600);
  while ((await observer.statsTube('empty'))['current-waiting'] === 0);
  certified._conn._socket.destroy();
  await assert.rejects(waiting, { code: 'CLOSED' });
  await observer.disconnect();
  const guarded = { port: port('BEANSTALKD_GUARDED_PORT') };
  const anonymous = await connected(guarded);
  await assert.rejects(anonymous.put('x'), { code: 'FORBIDDEN' });
  await anonymous.disconnect();
  await assert.rejects(connected({ ...guarded, token: 'x'.repeat(40) }), { code: 'UNAUTHORIZED' });
  await assert.rejects(connected({ port: port('BEANSTALKD_TLS_PORT'), tls: {}, token }), { code: /CERT|SIGNATURE/ });
  console.log('clients: node-beanstalk with the additions: good');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
