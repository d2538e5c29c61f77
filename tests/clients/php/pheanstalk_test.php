<?php
// Each addition of ExtendedPheanstalk.php: plain, then with a token, then with a token in TLS.

require_once getenv('PHEANSTALK_AUTOLOAD') ?: 'Pheanstalk/autoload.php';
require_once __DIR__ . '/ExtendedPheanstalk.php';
require_once __DIR__ . '/expect.php';

/** Uses and watches one tube. */
function work(ExtendedPheanstalk $queue, string $tube): void
{
    $name = class_exists(Pheanstalk\Values\TubeName::class) ? new Pheanstalk\Values\TubeName($tube) : $tube;
    $queue->pheanstalk->useTube($name);
    $queue->pheanstalk->watch($name);
    foreach ($queue->pheanstalk->listTubesWatched() as $other) {
        "$other" === $tube || $queue->pheanstalk->ignore($other);
    }
}

function tags(ExtendedPheanstalk $queue): void
{
    $put = fn (string $data, array $tags) => $queue->put($data, tags: ['tub' => 'work'] + $tags);
    [$first, $new] = $put('a', ['idp' => 'order-7', 'exp' => 3600]);
    equal(null, $new);
    equal([$first, 'READY'], $put('a', ['idp' => 'order-7']));
    // More urgent, so the reply has the priority, too.
    equal([$first, 'READY'], $queue->put('a', 7, tags: ['tub' => 'work', 'idp' => 'order-7']));
    refused('not a tag', fn () => $put('x', ['idp' => "a key\r\nwith spaces"]));
    refused('not a tag', fn () => $put('x', ['idp' => "a key\n"]));
    $put('one at a time', ['con' => 'customer-9']);
    $put('one at a time', ['con' => 'customer-9']);
    equal(2, count($queue->reserveBatch(10))); // of three
    equal(['2'], $queue->say('touch-all', 'TOUCHED_ALL'));
    equal([2], $queue->say('session night 0', 'SESSION'));
    equal(['3'], $queue->say('flush-tube work', 'FLUSHED'));
    [$member] = $put('member', ['grp' => 'import']);
    [$after] = $put('after', ['aft' => 'import']);
    equal([$member], $queue->reserveBatch(10));
    equal([1, 0], $queue->deleteBatch([$member]));
    equal($after->getId(), $queue->pheanstalk->reserveWithTimeout(5)->getId());
    $queue->pheanstalk->delete($after);
}

function batches(ExtendedPheanstalk $queue): void
{
    $put = array_map(fn ($n) => $queue->put("job $n", tags: ['tub' => 'work'])[0], range(0, 4));
    $jobs = $queue->reserveBatch(3, 5);
    equal(array_slice($put, 0, 3), $jobs);
    equal([1, 0], $queue->deleteBatch([$put[4]]));
    equal([3, 1], $queue->deleteBatch([...$jobs, $put[4]]));
    equal([1, 0], $queue->deleteBatch($queue->reserveBatch(3)));
    equal([0, 0], $queue->deleteBatch($queue->reserveBatch(3)));
    equal([], $queue->reserveBatch(3));
    equal([], $queue->reserveBatch(3, 0));
}

/** Each connection has the fields, and the client reads the jobs as before. */
function fields(ExtendedPheanstalk $queue): void
{
    work($queue, 'work');
    [$first] = $queue->put('one');
    [$second] = $queue->put('two 2 3', ttr: 77);
    $job = $queue->pheanstalk->reserveWithTimeout(5);
    equal([$first->getId(), 'one'], [$job->getId(), $job->getData()]);
    equal(['tube' => 'work', 'attempts' => '1', 'ttr' => '60'], $queue->fields[$job->getId()]);
    $queue->pheanstalk->release($job, 1, 0);
    $jobs = $queue->reserveBatch(2);
    equal(['one', 'two 2 3'], array_map(fn ($job) => $job->getData(), $jobs));
    $of = array_map(fn ($job) => $queue->fields[$job->getId()], $jobs);
    equal(['2', '1', '77'], [$of[0]['attempts'], $of[1]['attempts'], $of[1]['ttr']]);
    equal([2, 0], $queue->deleteBatch($jobs));
    $queue->say('flush-tube work', 'FLUSHED');
}

function tubes(ExtendedPheanstalk $queue): void
{
    equal(['2'], $queue->say('watch other 5', 'WATCHING'));
    equal(['weighted'], $queue->say('reserve-mode weighted', 'USING'));
    $queue->say('reserve-mode fifo', 'USING');
    [$twin] = $queue->put('a', tags: ['tub' => 'work', 'idp' => 'twin']);
    $queue->say("move {$twin->getId()} other", 'MOVED');
    equal('other', trim($queue->pheanstalk->statsJob($twin)->tube, '"'));
    [$second] = $queue->put('a', tags: ['tub' => 'work', 'idp' => 'twin']);
    refused('EXISTS', fn () => $queue->say("move {$second->getId()} other", 'MOVED'));
    $queue->say('ignore other', 'WATCHING');
    $queue->pheanstalk->bury($queue->pheanstalk->reserveWithTimeout(5));
    equal(['1'], $queue->say('flush-buried work', 'FLUSHED'));
    equal(['1'], $queue->say('flush-tube other', 'FLUSHED'));
}

/** A lost connection is an error: the program knows whether it may put the job again. Then pheanstalk 4 connects. */
function reconnect(ExtendedPheanstalk $queue): void
{
    $put = fn () => $queue->put('once', tags: ['tub' => 'work']);
    $lose = fn () => stream_socket_shutdown((fn () => $this->stream)->call($queue), STREAM_SHUT_RDWR);
    $lose();
    refused('lost', $put);
    if (class_exists(Pheanstalk\Exception\SocketException::class)) {
        [$job] = $put();
        equal([$job], $queue->reserveBatch(10)); // it watches what it has watched
        equal([1, 0], $queue->deleteBatch([$job]));
    }
}

/** What a new connection uses and watches by itself needs no right. */
function rights_to_one_tube(ExtendedPheanstalk $queue): void
{
    $queue->put('to: ann', tags: ['tub' => 'mail']);
    work($queue, 'mail');
    [$job] = $queue->reserveBatch(10);
    equal('to: ann', $job->getData());
    $queue->pheanstalk->delete($job);
    refused('FORBIDDEN', fn () => $queue->put('x', tags: ['tub' => 'orders']));
}

foreach (ways_to_connect() as [$port, $tls, $token]) {
    $queue = new ExtendedPheanstalk('127.0.0.1', $port, $tls, $token);
    work($queue, 'work');
    tags($queue);
    batches($queue);
    tubes($queue);
    reconnect($queue);
    fields(new ExtendedPheanstalk('127.0.0.1', $port, $tls, $token, ['tube', 'attempts', 'ttr']));
}
$token = getenv('BEANSTALKD_TOKEN_FOR_MAIL');
rights_to_one_tube(new ExtendedPheanstalk('127.0.0.1', port('GUARDED_PORT'), token: $token));
$files = ['cafile' => 'CA', 'local_cert' => 'CERTIFICATE', 'local_pk' => 'KEY'];
$files = array_map(fn ($name) => getenv("BEANSTALKD_$name"), $files);
(new ExtendedPheanstalk('127.0.0.1', port('MUTUAL_PORT'), $files))->put('x');
$anonymous = new ExtendedPheanstalk('127.0.0.1', port('GUARDED_PORT'));
refused('FORBIDDEN', fn () => $anonymous->say('flush-tube work', 'FLUSHED'));
$wrong = new ExtendedPheanstalk('127.0.0.1', port('GUARDED_PORT'), token: str_repeat('x', 40));
refused('UNAUTHORIZED', fn () => $wrong->say('touch-all', 'TOUCHED_ALL'));
$suspicious = new ExtendedPheanstalk('127.0.0.1', port('TLS_PORT'), [], getenv('BEANSTALKD_TOKEN'));
refused('certificate is not trusted', fn () => $suspicious->say('touch-all', 'TOUCHED_ALL'));
echo "clients: pheanstalk with the additions: good\n";
