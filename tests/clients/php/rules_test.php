<?php
// Rules for tubes below what frameworks do on top, each with its own driver, worker and retries: Laravel's `beanstalkd`
// and Symfony's `beanstalkd://`. Yii's driver is in no package of Debian; the commands that it sends are sent here.
//
// The rule of the tube `retried`: backoff = "1h", max-attempts = 3, dead-tube = "dead".

foreach (['Pheanstalk', 'Illuminate/Queue', 'Illuminate/Events', 'Illuminate/Bus', 'Symfony/Component/Messenger',
    'Symfony/Component/Messenger/Bridge/Beanstalkd'] as $library) {
    require_once "$library/autoload.php";
}
require_once __DIR__ . '/expect.php';
require_once __DIR__ . '/ExtendedPheanstalk.php';

use Illuminate\Bus\Dispatcher;
use Illuminate\Container\Container;
use Illuminate\Contracts\Bus\Dispatcher as DispatcherContract;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Events\Dispatcher as Events;
use Illuminate\Queue\Capsule\Manager;
use Illuminate\Queue\Connectors\BeanstalkdConnector;
use Illuminate\Queue\InteractsWithQueue;
use Illuminate\Queue\Worker as LaravelWorker;
use Illuminate\Queue\WorkerOptions;
use Pheanstalk\Pheanstalk;
use Psr\Container\ContainerInterface;
use Symfony\Component\Messenger\Bridge\Beanstalkd\Transport\BeanstalkdTransportFactory;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Event\WorkerMessageFailedEvent;
use Symfony\Component\Messenger\EventListener\SendFailedMessageForRetryListener;
use Symfony\Component\Messenger\Handler\HandlersLocator;
use Symfony\Component\Messenger\MessageBus;
use Symfony\Component\Messenger\Middleware\HandleMessageMiddleware;
use Symfony\Component\Messenger\Retry\MultiplierRetryStrategy;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;
use Symfony\Component\Messenger\Worker as SymfonyWorker;

final class Handler implements ExceptionHandler
{
    public function report(Throwable $e)
    {
    }

    public function shouldReport(Throwable $e)
    {
        return false;
    }

    public function render($request, Throwable $e)
    {
    }

    public function renderForConsole($output, Throwable $e)
    {
    }
}

/** A job of Laravel, and a message of Symfony. */
final class Order implements ShouldQueue
{
    use InteractsWithQueue;

    public static ?Closure $work = null;

    public function handle(): void
    {
        (self::$work)($this->job);
    }
}

/** What a container of one thing has under any name. */
final class Only implements ContainerInterface
{
    public function __construct(private object $thing)
    {
    }

    public function get(string $id)
    {
        return $this->thing;
    }

    public function has(string $id): bool
    {
        return true;
    }
}

/** Messenger can do without Symfony's dispatcher, but for its retries. They need no more of it than these. */
interface Dispatches
{
    public function dispatch(object $event): object;
}
interface Subscribes
{
}
foreach ([Dispatches::class => 'Symfony\Contracts\EventDispatcher\EventDispatcherInterface',
    Subscribes::class => 'Symfony\Component\EventDispatcher\EventSubscriberInterface'] as $ours => $theirs) {
    interface_exists($theirs) || class_alias($ours, $theirs);
}

final class OnFailure implements Symfony\Contracts\EventDispatcher\EventDispatcherInterface
{
    public function __construct(private SendFailedMessageForRetryListener $retries)
    {
    }

    public function dispatch(object $event, ?string $eventName = null): object
    {
        $event instanceof WorkerMessageFailedEvent && $this->retries->onMessageFailed($event);
        return $event;
    }
}

$extended = new ExtendedPheanstalk('127.0.0.1', port('PORT'));
$client = $extended->pheanstalk;
$extended->say('flush-tube retried', 'FLUSHED');
/** The stats of the only job of a tube; null if it has none. */
$only = function (string $tube) use ($client) {
    $client->useTube($tube);
    foreach (['peekReady', 'peekDelayed', 'peekBuried'] as $peek) {
        if ($job = $client->$peek()) {
            return $client->statsJob($job);
        }
    }
    return null;
};
/** Its state, delay and failures. */
$state = fn (string $tube = 'retried') => array_map(fn ($key) => $only($tube)[$key], ['state', 'delay', 'failures']);
$kick = fn () => $client->useTube('retried')->kick(1);
$redrive = function () use ($extended, $only) {
    $extended->say('move ' . $only('dead')['id'] . ' retried', 'MOVED');
};

// Laravel.
$container = new Container();
$container->instance(ExceptionHandler::class, new Handler());
$container->instance(\Illuminate\Contracts\Container\Container::class, $container);
$container->bind(DispatcherContract::class, fn () => new Dispatcher($container));
$container->instance('events', new Events($container));
$manager = new Manager($container);
$manager->getQueueManager()->addConnector('beanstalkd', fn () => new BeanstalkdConnector());
$connection = ['driver' => 'beanstalkd', 'host' => '127.0.0.1', 'port' => port('PORT'), 'queue' => 'default'];
$manager->addConnection($connection + ['retry_after' => 60, 'block_for' => 0]);
/** Runs the next job as `artisan queue:work --tries=… --backoff=…` does. */
$laravel = function (int $tries, int $backoff) use ($manager, $container) {
    $worker = new LaravelWorker($manager->getQueueManager(), $container['events'], new Handler(), fn () => false);
    $worker->runNextJob('default', 'retried', new WorkerOptions('default', $backoff, 128, 0, 0, $tries));
};
Order::$work = fn () => throw new RuntimeException('it fails');

// Without a delay of its own, the rule's counts; with one, Laravel's does. Both are failures; the third is the last.
$manager->getConnection()->push(new Order(), '', 'retried');
$laravel(0, 0);
equal(['delayed', 3600, 1], $state());
$kick();
$laravel(0, 700);
equal(['delayed', 700, 2], $state());
$kick();
$laravel(0, 0);
equal([null, 'ready', 3], [$only('retried'), $state('dead')[0], $state('dead')[2]]);
// Sent back, it has no failures, but Laravel counts reservations: with fewer tries it gives it up at once.
$redrive();
equal(['ready', 0], [$state()[0], $state()[2]]);
$laravel(0, 0);
equal(['delayed', 3600, 1], $state());
$kick();
$laravel(3, 0);
equal([null, null], [$only('retried'), $only('dead')]);

// With fewer tries than the rule has attempts, Laravel deletes the job before it is dead.
$manager->getConnection()->push(new Order(), '', 'retried');
$laravel(2, 0);
equal(['delayed', 3600, 1], $state());
$kick();
$laravel(2, 0);
equal([null, null], [$only('retried'), $only('dead')]);

// A job that its own code buries, or releases, is where this code wants it; a bury is no failure.
$manager->getConnection()->push(new Order(), '', 'retried');
Order::$work = fn ($job) => $job->release(500);
$laravel(0, 0);
equal(['delayed', 500, 1], $state());
$kick();
Order::$work = fn ($job) => $job->bury();
$laravel(0, 0);
equal(['buried', 500, 1], $state());
$extended->say('flush-tube retried', 'FLUSHED');

// Symfony. A message that fails is put again, with Symfony's delay, and the first one is deleted: the rule sees a new
// job each time.
$dsn = 'beanstalkd://127.0.0.1:' . port('PORT') . '?tube_name=retried&ttr=50';
$transport = (new BeanstalkdTransportFactory())->createTransport($dsn, [], new PhpSerializer());
$symfony = function (?Closure $meanwhile = null) use ($transport) {
    $worker = null;
    $handler = function () use (&$worker, $meanwhile) {
        $worker->stop();
        $meanwhile === null || $meanwhile();
        throw new RuntimeException('it fails');
    };
    $bus = new MessageBus([new HandleMessageMiddleware(new HandlersLocator([Order::class => [$handler]]))]);
    $retries = new MultiplierRetryStrategy(1, 700000);
    $listener = new SendFailedMessageForRetryListener(new Only($transport), new Only($retries));
    $worker = new SymfonyWorker(['retried' => $transport], $bus, new OnFailure($listener));
    $worker->run(['sleep' => 1000]);
};
$transport->send(new Envelope(new Order()));
$first = $only('retried')['id'];
$symfony();
equal(['delayed', 700, 0], $state());
equal(true, $only('retried')['id'] > $first);
$kick();
$symfony(); // Its last try: it is deleted, and not dead.
equal([null, null], [$only('retried'), $only('dead')]);

// Yii: reserve, stats-job, and a delete if it went well. If not, Yii lets the time to run end, which is a failure.
$fails = function (int $id) use ($client) {
    $client->watchOnly('retried');
    $job = $client->reserveWithTimeout(0);
    equal($id, $job->getId());
    $attempt = (int) $client->statsJob($job)['reserves'];
    $give_up_at = microtime(true) + 60;
    while ($client->statsJob($job)['state'] === 'reserved' && microtime(true) < $give_up_at) {
        usleep(20000);
    }
    return $attempt;
};
$id = $client->useTube('retried')->put('x', Pheanstalk::DEFAULT_PRIORITY, 0, 1)->getId();
equal(1, $fails($id));
equal(['delayed', 1], [$state()[0], $state()[2]]);
foreach ([2, 3] as $attempt) {
    $kick();
    equal($attempt, $fails($id));
}
equal(['"retried"', 3], [$only('dead')['dead-from'], $state('dead')[2]]);
$redrive();
equal(['ready', 0], [$state()[0], $state()[2]]);
$extended->say('flush-tube retried', 'FLUSHED');
echo "clients: rules for tubes below Laravel, Symfony and Yii: good\n";
