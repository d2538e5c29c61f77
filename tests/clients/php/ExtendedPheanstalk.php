<?php
// pheanstalk with what this server adds to the protocol: TLS, log-in, tags of `put`, fields, batches, sessions.
//
// Copy this file into your project. It needs pheanstalk 4 or later from the registry, and nothing else:
//
//     $queue = new ExtendedPheanstalk('queue.example.org', 11301, tls: [], token: $token);
//     $queue->work('orders');
//     [$job, $state] = $queue->put('order 7', tags: ['idp' => 'order-7', 'exp' => 3600]);
//     $queue->deleteBatch($queue->reserveBatch(100, 5));
//     [$flushed] = $queue->say('flush-tube orders', 'FLUSHED'); // and every other command with a line for an answer

use Pheanstalk\Contract\{JobIdInterface, SocketFactoryInterface, SocketInterface};
use Pheanstalk\Exception\{ConnectionException, ServerException, SocketException};
use Pheanstalk\Pheanstalk;
use Pheanstalk\Values\{Job, JobId, TubeName};

/** The socket of a Pheanstalk: encrypted and logged in. Each connection of the Pheanstalk is made here. */
final class ExtendedPheanstalk implements SocketFactoryInterface, SocketInterface
{
    public readonly Pheanstalk $pheanstalk;
    private $stream = null;
    private array $values = []; // of the fields of the last jobs, by their ids

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
        stream_set_timeout($stream, 1 << 30); // a reserve waits as long as it likes
        $this->stream = $stream;
        $this->token === null || $this->exchange("auth {$this->token}", 'AUTHENTICATED');
        if ($this->fields) { // a server without them says BAD_FORMAT: its jobs come without
            $this->exchange('reserve-fields ' . implode(' ', $this->fields), 'USING', 'BAD_FORMAT');
        }
        return $this;
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
        foreach ($tags as $tag => $value) { // a space or a line end would change the command
            preg_match('~^[-+/;.$_()A-Za-z0-9:]+$~D', "$tag:$value")
                || throw new \InvalidArgumentException("not a name for the server: $tag:$value");
            $line .= " $tag:$value";
        }
        $words = $this->say("$line\r\n$data", 'INSERTED');
        return [self::job($words[0], $data), $words[1] ?? null];
    }

    /** @return array up to $n jobs; with seconds, waits so long for the first */
    public function reserveBatch(int $n, ?int $seconds = null): array
    {
        [$count] = $this->say(rtrim("reserve-batch $n $seconds"), 'RESERVED_BATCH', 'TIMED_OUT') ?: [0];
        $jobs = [];
        while (count($jobs) < (int) $count) {
            [, $id, $size] = explode(' ', $this->getLine());
            $jobs[] = self::job($id, substr($this->read((int) $size + 2), 0, -2));
        }
        return $jobs;
    }

    /** @return int[] how many were deleted, and how many were not found */
    public function deleteBatch(array $jobs): array
    {
        $ids = array_map(fn ($job) => is_object($job) ? $job->getId() : (int) $job, $jobs);
        return array_map('intval', $this->say('delete-batch ' . implode(' ', $ids), 'DELETED_BATCH'));
    }

    /** @return string[] what was asked for of one of the last reserved jobs, by name; none where the server has none */
    public function fields(JobIdInterface|string $job): array
    {
        $values = $this->values[is_object($job) ? $job->getId() : $job] ?? [];
        return $values ? array_combine($this->fields, $values) : [];
    }

    /** Sends a line, and returns the words of the answer behind its status; none for $other. */
    public function say(string $line, string $status, ?string $other = null): array
    {
        $this->stream ?? $this->pheanstalk->stats(); // connects
        try {
            return $this->exchange($line, $status, $other);
        } catch (SocketException) { // version 4 connects again, and says again what it uses and watches
            $this->pheanstalk->stats();
            return $this->exchange($line, $status, $other);
        }
    }

    private function exchange(string $line, string $status, ?string $other = null): array
    {
        $this->write("$line\r\n");
        $words = explode(' ', $this->getLine());
        return match ($got = array_shift($words)) {
            $status => $words,
            $other => [],
            default => throw new ServerException("$got in reply to " . strtok($line, ' ')),
        };
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
            $this->values = array_slice([$words[1] => array_splice($words, 3)] + $this->values, 0, 1000, true);
        }
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

    /** The name as this release of pheanstalk takes it. */
    public static function tube(string $name): string|TubeName
    {
        return class_exists(TubeName::class) ? new TubeName($name) : $name;
    }

    private static function job(string $id, string $data): JobIdInterface
    {
        return class_exists(Job::class) ? new Job(new JobId($id), $data) : new \Pheanstalk\Job((int) $id, $data);
    }
}
