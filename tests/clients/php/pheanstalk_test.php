<?php
// Each addition of ExtendedPheanstalk.php: plain, then with a token, then with a token in TLS.

require_once getenv('PHEANSTALK_AUTOLOAD') ?: 'Pheanstalk/autoload.php';
require_once __DIR__ . '/ExtendedPheanstalk.php';
require_once __DIR__ . '/expect.php';

function tags(ExtendedPheanstalk $queue): void
{
    $put = fn (string $data, array $tags) => $queue->put($data, tags: $tags);
    [$first, $new] = $put('a', ['idp' => 'order-7', 'exp' => 3600]);
    equal(null, $new);
    equal([$first, 'READY'], $put('a', ['idp' => 'order-7']));
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
    $put = array_map(fn ($n) => $queue->put("job $n")[0], range(0, 4));
    $jobs = $queue->reserveBatch(3, 5);
    equal(array_slice($put, 0, 3), $jobs);
    equal([4, 1], $queue->deleteBatch([...$jobs, $put[4], 10 ** 9]));
    equal([1, 0], $queue->deleteBatch($queue->reserveBatch(3)));
    equal([], $queue->reserveBatch(3));
    equal([], $queue->reserveBatch(3, 0));
}

/** Each connection has the fields, and the client reads the jobs as before. */
function fields(ExtendedPheanstalk $queue): void
{
    $queue->work('work');
    [$first] = $queue->put('one');
    [$second] = $queue->put('two 2 3', ttr: 77);
    $job = $queue->pheanstalk->reserveWithTimeout(5);
    equal([$first->getId(), 'one'], [$job->getId(), $job->getData()]);
    equal(['tube' => 'work', 'attempts' => '1', 'ttr' => '60'], $queue->fields($job));
    $queue->pheanstalk->release($job, 1, 0);
    $jobs = $queue->reserveBatch(2);
    equal(['one', 'two 2 3'], array_map(fn ($job) => $job->getData(), $jobs));
    equal(['2', '77'], [$queue->fields($jobs[0])['attempts'], $queue->fields($jobs[1])['ttr']]);
    equal([2, 0], $queue->deleteBatch($jobs));
    equal('1', $queue->fields($second)['attempts']);
    equal([], $queue->fields($queue->put('three')[0]));
    $queue->say('flush-tube work', 'FLUSHED');
}

function tubes(ExtendedPheanstalk $queue): void
{
    $queue->pheanstalk->watch(ExtendedPheanstalk::tube('other'));
    equal(['2'], $queue->say('watch other 5', 'WATCHING'));
    equal(['weighted'], $queue->say('reserve-mode weighted', 'USING'));
    $queue->say('reserve-mode fifo', 'USING');
    [$twin] = $queue->put('a', tags: ['idp' => 'twin']);
    $queue->say("move {$twin->getId()} other", 'MOVED');
    equal('other', trim($queue->pheanstalk->statsJob($twin)->tube, '"'));
    [$second] = $queue->put('a', tags: ['idp' => 'twin']);
    refused('EXISTS', fn () => $queue->say("move {$second->getId()} other", 'MOVED'));
    $queue->work('work');
    $queue->pheanstalk->bury($queue->pheanstalk->reserveWithTimeout(5));
    equal(['1'], $queue->say('flush-buried work', 'FLUSHED'));
    equal(['1'], $queue->say('flush-tube other', 'FLUSHED'));
}

/** A command notices that the connection is lost, and goes on with another one. */
function reconnect(ExtendedPheanstalk $queue): void
{
    stream_socket_shutdown((fn () => $this->stream)->call($queue), STREAM_SHUT_RDWR);
    if (!class_exists(Pheanstalk\Exception\SocketException::class)) {
        // Later releases say so, and leave it to the program.
        refused('lost', fn () => $queue->say('touch-all', 'TOUCHED_ALL'));
        return;
    }
    [$job] = $queue->put('after the reconnect');
    equal([$job], $queue->reserveBatch(1));
    equal([1, 0], $queue->deleteBatch([$job]));
}

foreach (ways_to_connect() as [$port, $tls, $token]) {
    $queue = new ExtendedPheanstalk('127.0.0.1', $port, $tls, $token);
    $queue->work('work');
    tags($queue);
    batches($queue);
    tubes($queue);
    reconnect($queue);
    fields(new ExtendedPheanstalk('127.0.0.1', $port, $tls, $token, fields: ['tube', 'attempts', 'ttr']));
}
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
