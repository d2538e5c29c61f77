<?php
// Laravel's queue on this server, beyond its driver `beanstalkd`: TLS and log-in, unique jobs and other tags,
// queue:clear, and attempts that come with the job. Needs ExtendedPheanstalk.php. In a service provider:
//
//     Queue::extend('beanstalkd-extended', fn () => new ExtendedBeanstalkdConnector());
//
// and in config/queue.php, beside the keys of the driver `beanstalkd`:
//
//     'driver' => 'beanstalkd-extended',
//     'token' => env('BEANSTALKD_TOKEN'),
//     'tls' => ['cafile' => '/etc/ssl/queue.pem'],

use Illuminate\Contracts\Queue\ClearableQueue;
use Illuminate\Queue\BeanstalkdQueue;
use Illuminate\Queue\Connectors\ConnectorInterface;
use Illuminate\Queue\Jobs\BeanstalkdJob;

/** For jobs: without a lock in a cache, a job with `idp` is queued once, until it is deleted or has failed for good. */
interface HasTags
{
    /** @return array for example ['idp' => "order-{$this->id}", 'con' => "customer-{$this->customer}:2"] */
    public function tags(): array;
}

final class ExtendedBeanstalkdConnector implements ConnectorInterface
{
    public function connect(array $config)
    {
        $extended = new ExtendedPheanstalk(
            $config['host'],
            $config['port'] ?? 11300,
            $config['tls'] ?? null,
            $config['token'] ?? null,
            ['attempts'],
            $config['timeout'] ?? 10,
        );
        $queue = new ExtendedBeanstalkdQueue(
            $extended->pheanstalk,
            $config['queue'],
            $config['retry_after'] ?? 60,
            $config['block_for'] ?? 0,
            $config['after_commit'] ?? null,
        );
        $queue->extended = $extended;
        return $queue;
    }
}

class ExtendedBeanstalkdQueue extends BeanstalkdQueue implements ClearableQueue
{
    public ExtendedPheanstalk $extended;

    public function push($job, $data = '', $queue = null)
    {
        return $this->later(null, $job, $data, $queue);
    }

    public function later($delay, $job, $data = '', $queue = null)
    {
        $options = ['tags' => $job instanceof HasTags ? $job->tags() : []];
        $options['delay'] = $delay === null ? 0 : $this->secondsUntil($delay);
        $send = fn ($payload, $queue) => $this->pushRaw($payload, $queue, $options);
        $payload = $this->createPayload($job, $this->getQueue($queue), $data, $delay);
        return $this->enqueueUsing($job, $payload, $queue, $delay, $send);
    }

    public function pushRaw($payload, $queue = null, array $options = [])
    {
        $tags = ['tub' => $this->getQueue($queue)] + ($options['tags'] ?? []);
        return $this->extended->put($payload, 1024, $options['delay'] ?? 0, $this->timeToRun, $tags)[0];
    }

    public function pop($queue = null, $index = 0)
    {
        $job = parent::pop($queue, $index)?->getPheanstalkJob();
        if ($job === null) {
            return null;
        }
        $arguments = [$this->container, $this->pheanstalk, $job, $this->connectionName, $this->getQueue($queue)];
        return new ExtendedBeanstalkdJob($this->extended->fields[$job->getId()] ?? [], ...$arguments);
    }

    /** For `artisan queue:clear`: one command, however many jobs there are. Also deletes reserved jobs. */
    public function clear($queue)
    {
        return (int) $this->extended->say('flush-tube ' . $this->getQueue($queue), 'FLUSHED')[0];
    }
}

class ExtendedBeanstalkdJob extends BeanstalkdJob
{
    private int $attempts;

    public function __construct(array $fields, ...$arguments)
    {
        parent::__construct(...$arguments);
        // The number came with the job, so it is known after the job is deleted. A server without fields is asked now.
        $this->attempts = $fields['attempts'] ?? parent::attempts();
    }

    public function attempts()
    {
        return $this->attempts;
    }
}
