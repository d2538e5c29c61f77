<?php
// pheanstalk with what this server adds to the protocol: TLS, log-in, tags of `put`, fields, batches, sessions.
// Copy this file into your project. It needs pheanstalk 4 or later from the registry, and nothing else:
//
//     $queue = new ExtendedPheanstalk('queue.example.org', 11301, tls: [], token: $token);
//     [$job, $state] = $queue->put('order 7', tags: ['tub' => 'orders', 'idp' => 'order-7', 'exp' => 3600]);
//     $queue->deleteBatch($queue->reserveBatch(100, 5));

use Pheanstalk\Contract\{JobIdInterface, SocketFactoryInterface, SocketInterface};
use Pheanstalk\Exception\{ConnectionException, ServerException, SocketException};
use Pheanstalk\{Job, Pheanstalk, Values};

/** The socket of a Pheanstalk: encrypted and logged in. Each connection of the Pheanstalk is made here. */
final class ExtendedPheanstalk implements SocketFactoryInterface, SocketInterface
{
    public readonly Pheanstalk $pheanstalk;
    public array $fields = []; // of the last reserved jobs, by their ids: [7 => ['attempts' => '1']]
    private $stream = null;

    /** `tls` has options of PHP's `ssl` context: cafile; for a client's certificate local_cert, local_pk. */
    public function __construct(
        private string $host, private int $port = 11300, private ?array $tls = null, private ?string $token = null,
        private array $reserveFields = [], private int $connectTimeout = 10,
    ) {
        $this->pheanstalk = Pheanstalk::createWithFactory($this);
    }

    /**
     * @param array $tags tub => 'orders', idp => 'order-7' or 'order-7:60', con => 'customer-9:2', grp, aft, exp
     * @return array the job, and null if it is new; else its state: READY, RESERVED, DELAYED, BURIED or DELETED
     */
    public function put(string $data, int $priority = 1024, int $delay = 0, int $ttr = 60, array $tags = []): array
    {
        $line = "put $priority $delay $ttr " . strlen($data);
        foreach ($tags as $tag => $value) { // a space or a line end would change the command
            $isWord = preg_match('/^[!-~]+$/D', "$tag:$value");
            $line .= $isWord ? " $tag:$value" : throw new \InvalidArgumentException("not a tag: $tag:$value");
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
        $ids = implode(' ', array_map(fn (JobIdInterface $job) => $job->getId(), $jobs));
        return $jobs ? array_map('intval', $this->say("delete-batch $ids", 'DELETED_BATCH')) : [0, 0];
    }

    /** Sends any other command, as 'session night 60', and returns the words after the status, one of these. */
    public function say(string $line, string ...$statuses): array
    {
        $this->stream ?? $this->pheanstalk->stats(); // connects
        $this->write("$line\r\n");
        $words = explode(' ', $this->getLine());
        $status = array_shift($words);
        in_array($status, $statuses, true) || throw new ServerException("$status in reply to " . strtok($line, ' '));
        return $words;
    }

    public function create(): SocketInterface
    {
        $target = ($this->tls === null ? 'tcp' : 'tls') . "://{$this->host}:{$this->port}";
        $options = ['ssl' => ($this->tls ?? []) + ['peer_name' => $this->host], 'socket' => ['tcp_nodelay' => true]];
        $context = stream_context_create($options);
        $stream = @stream_socket_client($target, $code, $why, $this->connectTimeout, context: $context);
        $why = $why ?: error_get_last()['message'] ?? 'TLS: its certificate is not trusted';
        $this->stream = $stream ?: throw new ConnectionException($code, $why);
        stream_set_timeout($stream, 1 << 30); // a reserve waits as long as it likes
        $this->token === null || $this->say("auth {$this->token}", 'AUTHENTICATED');
        $names = implode(' ', $this->reserveFields);
        $names === '' || $this->say("reserve-fields $names", 'USING', 'BAD_FORMAT'); // which older servers say
        return $this;
    }

    public function write(string $data): void
    {
        $this->stream && @fwrite($this->stream, $data) === strlen($data) || throw $this->lost();
    }

    public function read(int $length): string
    {
        $data = stream_get_contents($this->stream, $length);
        return strlen($data) === $length ? $data : throw $this->lost();
    }

    public function getLine($timeout = null): string
    {
        $words = explode(' ', rtrim(fgets($this->stream) ?: throw $this->lost()));
        if ($words[0] === 'RESERVED' && isset($words[3])) { // pheanstalk takes the last word for the size
            $fields = array_combine($this->reserveFields, array_splice($words, 3));
            $this->fields = array_slice([$words[1] => $fields] + $this->fields, 0, 1000, true);
        }
        return implode(' ', $words);
    }

    public function disconnect(): void
    {
        $this->stream = null;
    }

    private function lost(): \Exception
    {
        $this->disconnect(); // the next command connects again
        $why = 'the connection is lost';
        return class_exists(SocketException::class) ? new SocketException($why) : new ConnectionException(0, $why);
    }

    private static function job(string $id, string $data): JobIdInterface
    {
        return class_exists(Job::class) ? new Job((int) $id, $data) : new Values\Job(new Values\JobId($id), $data);
    }
}
