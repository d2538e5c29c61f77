<?php
// Symfony's Messenger on this server, beyond its transport beanstalkd://: TLS, log-in, attempts, and tags of messages,
// which make them unique, expire, or run one at a time. Needs ExtendedPheanstalk.php. In config/services.yaml and
// messenger.yaml:
//
//     ExtendedBeanstalkdTransportFactory: { tags: [messenger.transport_factory] }
//
//     transports:
//         orders: 'beanstalkds://TOKEN@queue.example.org:11301?tube_name=orders&cafile=/etc/ssl/queue.pem'
//
// `beanstalkd+auth://` logs in without TLS. A message is tagged where it is dispatched:
//
//     $bus->dispatch($message, [new TagsStamp(['idp' => "order-$id", 'exp' => 3600])]);
//
// A message that a worker receives has a FieldsStamp. Its `attempts` also count a message that has crashed its worker,
// which Messenger's own count of retries does not.

use Pheanstalk\Exception as PheanstalkException;
use Symfony\Component\Messenger\Bridge\Beanstalkd\Transport\{BeanstalkdReceivedStamp, BeanstalkdTransport, Connection};
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Exception\TransportException;
use Symfony\Component\Messenger\Stamp\{DelayStamp, NonSendableStampInterface, TransportMessageIdStamp};
use Symfony\Component\Messenger\Transport\Serialization\SerializerInterface;
use Symfony\Component\Messenger\Transport\{TransportFactoryInterface, TransportInterface};

/** Tags of the job that a message becomes: idp => 'order-7' or 'order-7:60', con => 'customer-9:2', exp => 3600. */
final class TagsStamp implements NonSendableStampInterface
{
    public function __construct(public readonly array $tags)
    {
    }
}

/** The message was not sent: the tube has one with the same idempotency key, in this state. */
final class ExistingMessageStamp implements NonSendableStampInterface
{
    public function __construct(public readonly string $state)
    {
    }
}

/** What the server says of a received message: attempts (this one included), age, trace. Older servers: nothing. */
final class FieldsStamp implements NonSendableStampInterface
{
    public function __construct(public readonly array $fields)
    {
    }
}

final class ExtendedBeanstalkdTransportFactory implements TransportFactoryInterface
{
    public function createTransport(string $dsn, array $options, SerializerInterface $serializer): TransportInterface
    {
        unset($options['transport_name']);
        $parts = parse_url($dsn);
        parse_str($parts['query'] ?? '', $query);
        $options += $query + ['tube_name' => 'default', 'timeout' => 0, 'ttr' => 90];
        $files = array_intersect_key($options, ['cafile' => 0, 'local_cert' => 0, 'local_pk' => 0]);
        $tls = $parts['scheme'] === 'beanstalkds' ? $files : null;
        $token = isset($parts['user']) ? rawurldecode($parts['user']) : null;
        $fields = ['attempts', 'age', 'trace'];
        $extended = new ExtendedPheanstalk($parts['host'], $parts['port'] ?? 11300, $tls, $token, $fields);
        return new ExtendedBeanstalkdTransport($extended, $options, $serializer);
    }

    public function supports(string $dsn, array $options): bool
    {
        return (bool) preg_match('~^beanstalkd(s|\+auth)://~', $dsn);
    }
}

final class ExtendedBeanstalkdTransport extends BeanstalkdTransport
{
    public function __construct(
        private ExtendedPheanstalk $extended,
        private array $options,
        private SerializerInterface $encoder,
    ) {
        $numbers = array_map('intval', ['timeout' => $options['timeout'], 'ttr' => $options['ttr']]);
        $known = $numbers + ['tube_name' => $options['tube_name']];
        parent::__construct(new Connection($known, $extended->pheanstalk), $encoder);
    }

    public function send(Envelope $envelope): Envelope
    {
        $encoded = $this->encoder->encode($envelope);
        $body = json_encode(['body' => $encoded['body'], 'headers' => $encoded['headers'] ?? []], JSON_THROW_ON_ERROR);
        $delay = intdiv($envelope->last(DelayStamp::class)?->getDelay() ?? 0, 1000);
        try {
            $tags = ['tub' => $this->options['tube_name']] + ($envelope->last(TagsStamp::class)?->tags ?? []);
            [$job, $state] = $this->extended->put($body, 1024, $delay, (int) $this->options['ttr'], $tags);
        } catch (PheanstalkException $exception) {
            throw new TransportException($exception->getMessage(), 0, $exception);
        }
        $envelope = $envelope->with(new TransportMessageIdStamp($job->getId()));
        return $state === null ? $envelope : $envelope->with(new ExistingMessageStamp($state));
    }

    public function get(): iterable
    {
        foreach (parent::get() as $envelope) {
            $id = $envelope->last(BeanstalkdReceivedStamp::class)->getId();
            yield $envelope->with(new FieldsStamp($this->extended->fields[$id] ?? []));
        }
    }

    /** Deletes all messages; how many. */
    public function clear(): int
    {
        return (int) $this->extended->say('flush-tube ' . $this->options['tube_name'], 'FLUSHED')[0];
    }
}
