<?php
// Laravel's queue through LaravelBeanstalkd.php, with its own worker: plain, then with a token, then with a token in
// TLS.

foreach (['Pheanstalk', 'Illuminate/Queue', 'Illuminate/Events', 'Illuminate/Bus'] as $library) {
    require_once "$library/autoload.php";
}
require_once __DIR__ . '/expect.php';
require_once __DIR__ . '/ExtendedPheanstalk.php';
require_once __DIR__ . '/LaravelBeanstalkd.php';

use Illuminate\Bus\Dispatcher;
use Illuminate\Container\Container;
use Illuminate\Contracts\Bus\Dispatcher as DispatcherContract;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Events\Dispatcher as Events;
use Illuminate\Queue\Capsule\Manager;
use Illuminate\Queue\InteractsWithQueue;
use Illuminate\Queue\Worker;
use Illuminate\Queue\WorkerOptions;

final class Order implements ShouldQueue, HasTags
{
    use InteractsWithQueue;

    public static array $handled = [];
    public static ?Closure $meanwhile = null;

    public function __construct(private int $id)
    {
    }

    public function tags(): array
    {
        return ['idp' => "order-{$this->id}", 'exp' => 3600];
    }

    public function handle(): void
    {
        self::$handled[] = [$this->id, $this->attempts()];
        (self::$meanwhile)($this->attempts());
    }
}

final class Handler implements ExceptionHandler
{
    public array $reported = [];

    public function report(Throwable $e)
    {
        $this->reported[] = $e->getMessage();
    }

    public function shouldReport(Throwable $e)
    {
        return true;
    }

    public function render($request, Throwable $e)
    {
    }

    public function renderForConsole($output, Throwable $e)
    {
    }
}

function queue_manager(array $config): Manager
{
    $container = new Container();
    $container->instance(ExceptionHandler::class, new Handler());
    $container->instance(\Illuminate\Contracts\Container\Container::class, $container);
    $container->bind(DispatcherContract::class, fn () => new Dispatcher($container));
    $container->instance('events', new Events($container));
    $manager = new Manager($container);
    $manager->getQueueManager()->addConnector('beanstalkd-extended', fn () => new ExtendedBeanstalkdConnector());
    $manager->addConnection(['driver' => 'beanstalkd-extended', 'host' => '127.0.0.1', 'queue' => 'default'] + $config);
    return $manager;
}

/** Runs the next job as `artisan queue:work --tries=2` does; what went wrong. */
function work(Manager $manager): array
{
    $container = $manager->getContainer();
    $handler = new Handler();
    $worker = new Worker($manager->getQueueManager(), $container['events'], $handler, fn () => false);
    $worker->runNextJob('default', 'orders', new WorkerOptions('default', 0, 128, 0, 0, 2));
    return $handler->reported;
}

foreach (ways_to_connect() as [$port, $tls, $token]) {
    $manager = queue_manager(['port' => $port, 'tls' => $tls, 'token' => $token]);
    $queue = $manager->getConnection();
    [Order::$handled, Order::$meanwhile] = [[], fn () => null];

    // A job is unique by its tag until it is done.
    $first = $queue->push(new Order(7), '', 'orders');
    equal($first->getId(), $queue->push(new Order(7), '', 'orders')->getId());
    equal(1, $queue->size('orders'));
    equal([], work($manager));
    equal([[7, 1]], Order::$handled);
    equal(true, $queue->push(new Order(7), '', 'orders')->getId() > $first->getId());
    equal(1, $queue->clear('orders'));

    // The server counts the attempts, also those of another worker.
    Order::$meanwhile = fn ($attempt) => $attempt > 1 ?: throw new RuntimeException('once');
    $queue->push(new Order(8), '', 'orders');
    equal([['once'], []], [work($manager), work($manager)]);
    equal([[7, 1], [8, 1], [8, 2]], Order::$handled);

    // A job that is deleted still answers the questions of Laravel; only its delete fails.
    Order::$meanwhile = fn () => equal(1, $queue->clear('orders'));
    $queue->later(0, new Order(9), '', 'orders');
    equal(1, count(work($manager)));
    equal([9, 1], end(Order::$handled));

    // The attempts came with the job, so no command asked for them.
    $queue->push(new Order(11), '', 'orders');
    $asked = fn () => $queue->getPheanstalk()->stats()['cmd-stats-job'];
    $before = $asked();
    equal([1, 1], [($job = $queue->pop('orders'))->attempts(), $job->attempts()]);
    equal($before, $asked());
    $job->delete();

    // A job with a delay, and raw payloads.
    $delayed = $queue->later(3600, new Order(10), '', 'orders');
    equal($delayed->getId(), $queue->push(new Order(10), '', 'orders')->getId());
    equal(3600, (int) $queue->getPheanstalk()->statsJob($delayed)->delay);
    $queue->pushRaw('{}', 'orders');
    equal(2, $queue->clear('orders'));
}
$wrong = queue_manager(['port' => port('GUARDED_PORT'), 'token' => str_repeat('x', 40)])->getConnection();
refused('UNAUTHORIZED', fn () => $wrong->clear('orders'));
echo "clients: Laravel's queue with the additions: good\n";
