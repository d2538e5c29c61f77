<?php
// pheanstalk with what this server adds to the protocol: TLS, log-in, tags of `put`, fields, batches, sessions.
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

    /** `tls` has options of PHP's `ssl` context: cafile; for a client's certificate local_cert, local_pk. */
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
            $isName = preg_match('~^[-+/;.$_()A-Za-z0-9:]+$~D', "$tag:$value");
            $line .= $isName ? " $tag:$value" : throw new \InvalidArgumentException("not a tag: $tag:$value");
        }
        [$id, $state] = $this->say("$line\r\n$data", 'INSERTED') + [1 => null];
        return [self::job($id, $data), $state];
    }

    /** @return array up to $n jobs; with seconds, waits so long for the first */
    public function reserveBatch(int $n, ?int $seconds = null): array
    {
        [$count] = $this->say(rtrim("reserve-batch $n $seconds"), 'RESERVED_BATCH', 'TIMED_OUT') ?: [0];
        for ($jobs = []; count($jobs) < (int) $count;) {
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

    /** @return string[] what the constructor has asked for of one of the last reserved jobs, by name */
    public function fields(JobIdInterface|string $job): array
    {
        $values = $this->values[is_object($job) ? $job->getId() : $job] ?? [];
        return $values ? array_combine($this->fields, $values) : [];
    }

    /** Sends a line, and returns the words of the answer behind its status, which is one of these. */
    public function say(string $line, string ...$statuses): array
    {
        try {
            $this->stream ?? $this->pheanstalk->stats(); // connects
            return $this->exchange($line, ...$statuses);
        } catch (SocketException) { // version 4 connects again, and says again what it uses and watches
            $this->pheanstalk->stats();
            return $this->exchange($line, ...$statuses);
        }
    }

    private function exchange(string $line, string ...$statuses): array
    {
        $this->write("$line\r\n");
        $words = explode(' ', $this->getLine());
        $status = array_shift($words);
        in_array($status, $statuses, true) || throw new ServerException("$status in reply to " . strtok($line, ' '));
        return $words;
    }

    // What a Pheanstalk needs.

    public function create(): SocketInterface
    {
        $target = ($this->tls === null ? 'tcp' : 'tls') . "://{$this->host}:{$this->port}";
        $options = ['ssl' => ($this->tls ?? []) + ['peer_name' => $this->host], 'socket' => ['tcp_nodelay' => true]];
        $context = stream_context_create($options);
        $stream = @stream_socket_client($target, $code, $why, $this->connectTimeout, context: $context);
        $why = $why ?: error_get_last()['message'] ?? 'TLS: its certificate is not trusted';
        $this->stream = $stream ?: throw new ConnectionException($code, $why);
        stream_set_timeout($stream, 1 << 30); // a reserve waits as long as it likes
        $this->token === null || $this->exchange("auth {$this->token}", 'AUTHENTICATED');
        if ($this->fields) { // a server without them says BAD_FORMAT: its jobs come without
            $this->exchange('reserve-fields ' . implode(' ', $this->fields), 'USING', 'BAD_FORMAT');
        }
        return $this;
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

    // What differs between the releases of pheanstalk.

    private static function lost(): \Exception
    {
        $why = 'the connection is lost';
        return class_exists(SocketException::class) ? new SocketException($why) : new ConnectionException(0, $why);
    }

    public static function tube(string $name): string|TubeName
    {
        return class_exists(TubeName::class) ? new TubeName($name) : $name;
    }

    private static function job(string $id, string $data): JobIdInterface
    {
        return class_exists(Job::class) ? new Job(new JobId($id), $data) : new \Pheanstalk\Job((int) $id, $data);
    }
}
