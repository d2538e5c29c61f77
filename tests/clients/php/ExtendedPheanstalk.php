<?php
// pheanstalk with what this server adds to the protocol: TLS, log-in, tags of `put`, batches, weights, whole tubes.
//
// Copy this file into your project. It needs pheanstalk 4.0 from the registry, and nothing else:
//
//     $queue = new ExtendedPheanstalk('queue.example.org', 11301, tls: [], token: $token);
//     $queue->pheanstalk->useTube('orders')->watch('orders');
//     $queue->put('order 7', tags: ['idp' => 'order-7', 'exp' => 3600]);
//     $queue->deleteBatch($queue->reserveBatch(100, 5));

use Pheanstalk\Contract\{SocketFactoryInterface, SocketInterface};
use Pheanstalk\Exception\{ConnectionException, ServerException, SocketException};
use Pheanstalk\{Job, Pheanstalk};
use Pheanstalk\Socket\FileSocket;

/** The put did not make a job: the tube has one with the same idempotency key. */
final class ExistingJob extends Job
{
    /** @param string $state READY, RESERVED, DELAYED, BURIED or DELETED */
    public function __construct(int $id, string $data, public readonly string $state)
    {
        parent::__construct($id, $data);
    }
}

/** Makes the sockets of a Pheanstalk, so that each is encrypted and logged in, and sends further commands on them. */
final class ExtendedPheanstalk implements SocketFactoryInterface
{
    public readonly Pheanstalk $pheanstalk;
    private ?SocketInterface $socket = null;

    /** @param ?array $tls options of PHP's `ssl` context: cafile; for a client's certificate local_cert, local_pk */
    public function __construct(
        private string $host,
        private int $port = 11300,
        private ?array $tls = null,
        private ?string $token = null,
        private int $connectTimeout = 10,
    ) {
        $this->pheanstalk = Pheanstalk::createWithFactory($this);
    }

    public function create(): SocketInterface
    {
        $target = ($this->tls === null ? 'tcp' : 'tls') . "://{$this->host}:{$this->port}";
        $ssl = ($this->tls ?? []) + ['peer_name' => $this->host];
        $context = stream_context_create(['ssl' => $ssl, 'socket' => ['tcp_nodelay' => true]]);
        $connect = STREAM_CLIENT_CONNECT;
        $stream = @stream_socket_client($target, $code, $reason, $this->connectTimeout, $connect, $context);
        if (!$stream) {
            $reason = $reason ?: error_get_last()['message'] ?? 'TLS: its certificate is not trusted';
            throw new ConnectionException($code, $reason);
        }
        stream_set_timeout($stream, PHP_INT_MAX >> 32); // a reserve waits as long as it likes
        $this->socket = new class($stream) extends FileSocket {
            public function __construct($stream)
            {
                $this->socket = $stream;
            }

            public function write(string $data): void
            {
                @parent::write($data); // a lost connection is an exception, and no warning besides
            }
        };
        if ($this->token !== null) {
            $this->exchange("auth {$this->token}", 'AUTHENTICATED');
        }
        return $this->socket;
    }

    /** @param array $tags idp => 'order-7' or 'order-7:60', con => 'customer:2', grp => 'g', aft => 'g', exp => 60 */
    public function put(string $data, int $priority = 1024, int $delay = 0, int $ttr = 60, array $tags = []): Job
    {
        $line = "put $priority $delay $ttr " . strlen($data);
        foreach ($tags as $tag => $value) {
            $line .= ' ' . self::word($tag) . ':' . self::word($value);
        }
        $words = $this->say("$line\r\n$data", 'INSERTED');
        return isset($words[1]) ? new ExistingJob((int) $words[0], $data, $words[1]) : new Job((int) $words[0], $data);
    }

    /** @return Job[] up to $n; with seconds, waits so long for the first */
    public function reserveBatch(int $n, ?int $seconds = null): array
    {
        $line = "reserve-batch $n" . ($seconds === null ? '' : " $seconds");
        [$count] = $this->say($line, 'RESERVED_BATCH', 'TIMED_OUT') ?: [0];
        $jobs = [];
        while (count($jobs) < (int) $count) {
            [, $id, $size] = explode(' ', $this->socket->getLine());
            $jobs[] = new Job((int) $id, $this->socket->read((int) $size));
            $this->socket->read(2);
        }
        return $jobs;
    }

    /** @return int[] how many were deleted, and how many were not found */
    public function deleteBatch(array $jobs): array
    {
        $ids = array_map(fn ($job) => is_object($job) ? $job->getId() : (int) $job, $jobs);
        return array_map('intval', $this->say('delete-batch ' . implode(' ', $ids), 'DELETED_BATCH'));
    }

    /** Touches all jobs that this client has reserved; how many. */
    public function touchAll(): int
    {
        return (int) $this->say('touch-all', 'TOUCHED_ALL')[0];
    }

    /** Deletes all jobs of the tube, those that are reserved included; how many. */
    public function flushTube(string $tube): int
    {
        return (int) $this->say('flush-tube ' . self::word($tube), 'FLUSHED')[0];
    }

    public function flushBuried(string $tube): int
    {
        return (int) $this->say('flush-buried ' . self::word($tube), 'FLUSHED')[0];
    }

    /** The share of a tube that the client watches; it counts in the modes weighted and weighted-fair. */
    public function weigh(string $tube, int $weight): void
    {
        $this->pheanstalk->watch($tube);
        $this->say('watch ' . self::word($tube) . " $weight", 'WATCHING');
    }

    public function reserveMode(string $mode): void
    {
        $this->say('reserve-mode ' . self::word($mode), 'USING');
    }

    public function move(Job $job, string $tube): void
    {
        $this->say("move {$job->getId()} " . self::word($tube), 'MOVED');
    }

    /** The value as part of a command line. A space or a line end in it would change the command. */
    private static function word(string|int $value): string
    {
        return preg_match('~^[-+/;.$_()A-Za-z0-9:]+$~D', $value)
            ? $value
            : throw new \InvalidArgumentException("not a name for the server: $value");
    }

    /** The words behind the status of the reply; none for $other. A lost connection is made again once. */
    private function say(string $line, string $status, ?string $other = null): array
    {
        if ($this->socket === null) {
            $this->pheanstalk->stats(); // connects
        }
        try {
            return $this->exchange($line, $status, $other);
        } catch (SocketException) {
            $this->pheanstalk->stats(); // connects, and says again what it uses and watches
            return $this->exchange($line, $status, $other);
        }
    }

    private function exchange(string $line, string $status, ?string $other = null): array
    {
        $this->socket->write("$line\r\n");
        $words = explode(' ', $this->socket->getLine());
        $got = array_shift($words);
        return match ($got) {
            $status => $words,
            $other => [],
            default => throw new ServerException("$got in reply to " . strtok($line, ' ')),
        };
    }
}
