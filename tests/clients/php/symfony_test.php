<?php
// Symfony's Messenger through SymfonyBeanstalkd.php, with its own bus and worker: plain, then with a token, then with a
// token in TLS.

require_once 'Pheanstalk/autoload.php';
require_once 'Symfony/Component/Messenger/autoload.php';
require_once 'Symfony/Component/Messenger/Bridge/Beanstalkd/autoload.php';
require_once __DIR__ . '/expect.php';
require_once __DIR__ . '/ExtendedPheanstalk.php';
require_once __DIR__ . '/SymfonyBeanstalkd.php';

use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Handler\HandlersLocator;
use Symfony\Component\Messenger\MessageBus;
use Symfony\Component\Messenger\Middleware\HandleMessageMiddleware;
use Symfony\Component\Messenger\Stamp\DelayStamp;
use Symfony\Component\Messenger\Stamp\TransportMessageIdStamp;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;
use Symfony\Component\Messenger\Worker;

final class Order
{
    public function __construct(public readonly int $id)
    {
    }
}

/** Lets Messenger's worker handle this many messages; their ids. */
function handled(ExtendedBeanstalkdTransport $transport, int $count): array
{
    $handled = [];
    $worker = null;
    $handler = function (Order $order) use (&$handled, &$worker, $count) {
        $handled[] = $order->id;
        count($handled) < $count || $worker->stop();
    };
    $bus = new MessageBus([new HandleMessageMiddleware(new HandlersLocator([Order::class => [$handler]]))]);
    $worker = new Worker(['orders' => $transport], $bus);
    $worker->run(['sleep' => 1000]);
    return $handled;
}

function transport(string $dsn): ExtendedBeanstalkdTransport
{
    $factory = new ExtendedBeanstalkdTransportFactory();
    equal(true, $factory->supports($dsn, []));
    return $factory->createTransport($dsn, ['transport_name' => 'orders'], new PhpSerializer());
}

equal(false, (new ExtendedBeanstalkdTransportFactory())->supports('beanstalkd://localhost', []));
foreach (ways_to_connect() as [$port, $tls, $token]) {
    $scheme = $tls === null ? 'beanstalkd+auth' : 'beanstalkds';
    $user = $token === null ? '' : rawurlencode($token) . '@';
    $options = ['tube_name' => 'orders', 'ttr' => 50] + ($tls ?? []);
    $dsn = "$scheme://{$user}127.0.0.1:$port?" . http_build_query($options);
    $transport = transport($dsn);
    $send = fn (int $id, $stamp) => $transport->send(new Envelope(new Order($id), [$stamp]));

    $unique = new TagsStamp(['idp' => 'order-7', 'exp' => 3600]);
    $first = $send(7, $unique);
    $again = $send(7, $unique);
    $id = fn ($envelope) => $envelope->last(TransportMessageIdStamp::class)->getId();
    equal($id($first), $id($again));
    equal(null, $first->last(ExistingMessageStamp::class));
    equal('READY', $again->last(ExistingMessageStamp::class)->state);
    $send(8, new TagsStamp([]));
    equal(2, $transport->getMessageCount());
    equal([7, 8], handled($transport, 2));
    equal(null, $send(7, $unique)->last(ExistingMessageStamp::class));
    equal(1, $transport->clear());

    // A message whose worker has died comes again, and says so.
    $send(10, new TagsStamp([]));
    $fields = fn ($transport) => [...$transport->get()][0]->last(FieldsStamp::class)->fields;
    $dies = transport($dsn);
    equal(['attempts' => '1', 'age' => '0', 'trace' => '-'], ['age' => '0'] + $fields($dies));
    unset($dies);
    gc_collect_cycles();
    do {
        $again = [...$transport->get()];
    } while (!$again);
    equal('2', $again[0]->last(FieldsStamp::class)->fields['attempts']);
    equal(10, $again[0]->getMessage()->id);
    $transport->ack($again[0]);

    $send(9, new DelayStamp(3600000));
    equal([0, 1], [$transport->getMessageCount(), $transport->clear()]);
}
$anonymous = transport('beanstalkd+auth://127.0.0.1:' . port('GUARDED_PORT'));
refused('FORBIDDEN', fn () => $anonymous->send(new Envelope(new Order(1))));
echo "clients: Symfony's Messenger with the additions: good\n";
