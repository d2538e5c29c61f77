<?php
// pheanstalk with what this server adds to the protocol: TLS, log-in, tags of `put`, batches, weights, whole tubes.
//
// Copy this file into your project. It needs pheanstalk 4 or later from the registry, and nothing else:
//
//     $queue = new ExtendedPheanstalk('queue.example.org', 11301, tls: [], token: $token);
//     $queue->work('orders');
//     [$job, $state] = $queue->put('order 7', tags: ['idp' => 'order-7', 'exp' => 3600]);
//     $queue->deleteBatch($queue->reserveBatch(100, 5));

use Pheanstalk\Contract\{JobIdInterface, SocketFactoryInterface, SocketInterface};
use Pheanstalk\Exception\{ConnectionException, ServerException, SocketException};
use Pheanstalk\Pheanstalk;
use Pheanstalk\Values\{Job, JobId, TubeName};

/** A socket for every release of pheanstalk. Version 4 connects again after a SocketException; later ones have none. */
final class ExtendedSocket implements SocketInterface
{
    /** What the server has said of the jobs that were reserved last, by their ids: the values of the fields. */
    public array $values = [];
    private bool $inBatch = false;

    public function __construct(private $stream)
    {
        stream_set_timeout($stream, 1 << 30); // a reserve waits as long as it likes
    }

    public function write(string $data): void
    {
        while ($data !== '') {
            $written = @fwrite($this->stream, $data);
            $data = $written ? substr($data, $written) : throw self::lost();
        }
    }

    public function read(int $length): string
    {
        $data = stream_get_contents($this->stream, $length);
        return strlen($data) === $length ? $data : throw self::lost();
    }

    public function getLine($timeout = null): string
    {
        $words = explode(' ', rtrim(fgets($this->stream) ?: throw self::lost()));
        if ($words[0] === 'RESERVED') { // pheanstalk takes the last word for the size
            $this->inBatch || $this->values = [];
            $this->values[$words[1]] = array_splice($words, 3);
        }
        $this->inBatch = str_starts_with($words[0], 'RESERVED');
        return implode(' ', $words);
    }

    public function disconnect(): void
    {
        fclose($this->stream);
    }

    private static function lost(): \Exception
    {
        return class_exists(SocketException::class)
            ? new SocketException('the connection is lost')
            : new ConnectionException(0, 'the connection is lost');
    }
}

/** Makes the sockets of a Pheanstalk, so that each is encrypted and logged in, and sends further commands on them. */
final class ExtendedPheanstalk implements SocketFactoryInterface
{
    public readonly Pheanstalk $pheanstalk;
    private ?SocketInterface $socket = null;

    /**
     * @param ?array $tls options of PHP's `ssl` context: cafile; for a client's certificate local_cert, local_pk
     * @param string[] $fields what fields() is to say of reserved jobs: tube, attempts, age, trace and others
     */
    public function __construct(
        private string $host,
        private int $port = 11300,
        private ?array $tls = null,
        private ?string $token = null,
        private int $connectTimeout = 10,
        private array $fields = [],
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
        $this->socket = new ExtendedSocket($stream);
        if ($this->token !== null) {
            $this->exchange("auth {$this->token}", 'AUTHENTICATED');
        }
        if ($this->fields) { // a server without them says BAD_FORMAT: its jobs come without
            $this->exchange('reserve-fields ' . implode(' ', $this->fields), 'USING', 'BAD_FORMAT');
        }
        return $this->socket;
    }

    /** Uses and watches one tube. */
    public function work(string $tube): void
    {
        $this->pheanstalk->useTube(self::tube($tube));
        $this->pheanstalk->watch(self::tube($tube));
        foreach ($this->pheanstalk->listTubesWatched() as $other) {
            "$other" === $tube || $this->pheanstalk->ignore($other);
        }
    }

    /**
     * @param array $tags idp => 'order-7' or 'order-7:60', con => 'customer-9:2', grp => 'g', aft => 'g', exp => 3600
     * @return array the job, and null if it is new; else its state: READY, RESERVED, DELAYED, BURIED or DELETED
     */
    public function put(string $data, int $priority = 1024, int $delay = 0, int $ttr = 60, array $tags = []): array
    {
        $line = "put $priority $delay $ttr " . strlen($data);
        foreach ($tags as $tag => $value) {
            $line .= ' ' . self::word($tag) . ':' . self::word($value);
        }
        $words = $this->say("$line\r\n$data", 'INSERTED');
        return [self::job($words[0], $data), $words[1] ?? null];
    }

    /** @return array up to $n jobs; with seconds, waits so long for the first */
    public function reserveBatch(int $n, ?int $seconds = null): array
    {
        $line = "reserve-batch $n" . ($seconds === null ? '' : " $seconds");
        [$count] = $this->say($line, 'RESERVED_BATCH', 'TIMED_OUT') ?: [0];
        $jobs = [];
        while (count($jobs) < (int) $count) {
            [, $id, $size] = explode(' ', $this->socket->getLine());
            $jobs[] = self::job($id, substr($this->socket->read((int) $size + 2), 0, -2));
        }
        return $jobs;
    }

    /** @return string[] what was asked for of a job that was reserved last, by name; empty where the server has none */
    public function fields(JobIdInterface $job): array
    {
        $values = $this->socket->values[$job->getId()] ?? [];
        return $values ? array_combine($this->fields, $values) : [];
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

    /**
     * Sends any other command that has a line for an answer, and returns the words behind its status; none for $other:
     * say('move 7 orders', 'MOVED'), say('flush-buried orders', 'FLUSHED'), say('watch orders 5', 'WATCHING').
     */
    public function say(string $line, string $status, ?string $other = null): array
    {
        $this->socket ?? $this->pheanstalk->stats(); // connects
        try {
            return $this->exchange($line, $status, $other);
        } catch (SocketException) { // version 4 connects again, and says again what it uses and watches
            $this->pheanstalk->stats();
            return $this->exchange($line, $status, $other);
        }
    }

    /** The name as this release of pheanstalk takes it. */
    public static function tube(string $name): string|TubeName
    {
        return class_exists(TubeName::class) ? new TubeName($name) : $name;
    }

    private static function job(string $id, string $data): JobIdInterface
    {
        return class_exists(Job::class) ? new Job(new JobId($id), $data) : new \Pheanstalk\Job((int) $id, $data);
    }

    /** The value as part of a command line. A space or a line end in it would change the command. */
    private static function word(string|int $value): string
    {
        return preg_match('~^[-+/;.$_()A-Za-z0-9:]+$~D', $value)
            ? $value
            : throw new \InvalidArgumentException("not a name for the server: $value");
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
