# Each addition of beaneater_extended.rb: plain, then with a token, then with a token in TLS.

require_relative 'beaneater_extended'

TOKEN = ENV.fetch('BEANSTALKD_TOKEN')

def address(name) = "127.0.0.1:#{ENV.fetch(name)}"

def equal(expected, actual)
  raise "expected #{expected.inspect}, but got #{actual.inspect}" unless expected == actual
end

def refused(error, cause = nil)
  result = yield
rescue error => e
  raise unless cause.nil? || e.cause.is_a?(cause)
else
  raise "#{error} expected, but got #{result.inspect}"
end

def tags(queue, work)
  first = work.put('a', idp: 'order-7', exp: 3600)
  again = work.put('a', pri: 7, idp: 'order-7') # more urgent, so the reply has the priority, too
  equal([nil, first[:id], 'READY'], [first[:state], again[:id], again[:state]])
  refused(ArgumentError) { work.put('x', idp: "a key\r\nwith spaces") }
  2.times { work.put('one at a time', con: 'customer-9') }
  equal(2, queue.reserve_batch(10).size) # of three
  equal(2, queue.touch_all)
  equal(2, queue.session('night', 0))
  equal(3, work.clear)
  member = work.put('member', grp: 'import')[:id]
  after = work.put('after', aft: 'import')[:id]
  equal([member], queue.reserve_batch(10).map(&:id))
  equal([1, 0], queue.delete_batch([member]))
  job = queue.tubes.reserve(5)
  equal(after, job.id)
  job.delete
end

def batches(queue, work)
  ids = Array.new(5) { |n| work.put("job #{n}")[:id] }
  jobs = queue.reserve_batch(3, 5)
  equal([ids.take(3), ['job 0', 'job 1', 'job 2']], [jobs.map(&:id), jobs.map(&:body)])
  equal([4, 1], queue.delete_batch(jobs + [ids[4], 10**9]))
  equal([1, 0], queue.delete_batch(queue.reserve_batch(3)))
  equal([0, 0], queue.delete_batch(queue.reserve_batch(3)))
  equal([], queue.reserve_batch(3))
  refused(Beaneater::TimedOutError) { queue.reserve_batch(3, 0) }
end

# A connection that is lost: the next one has the session, and its jobs.
def session(queue, work)
  queue.session('night', 60)
  id = work.put('held')[:id]
  equal(id, queue.tubes.reserve(5).id)
  queue.connection.connection.to_io.shutdown
  equal(1, queue.touch_all)
  queue.jobs.find(id).delete
  queue.session('night', 0)
end

def fields(queue, work)
  queue.reserve_fields('tube', 'attempts')
  ids = Array.new(2) { |n| work.put("job #{n} 9")[:id] }
  job = queue.tubes.reserve(5)
  equal([ids[0], 'job 0 9', { 'tube' => 'work', 'attempts' => '1' }], [job.id, job.body, job.fields])
  job.release
  # After a reconnect, too.
  queue.connection.connection.to_io.shutdown
  jobs = queue.reserve_batch(2)
  equal([%w[2 1], ['job 0 9', 'job 1 9']], [jobs.map { |one| one.fields['attempts'] }, jobs.map(&:body)])
  equal([2, 0], queue.delete_batch(jobs))
  queue.reserve_fields
end

def tubes(queue, work)
  queue.always('watch', 'other', 5)
  queue.always('reserve-mode', 'weighted')
  # The connection is lost: the client makes another one, and says it all again.
  queue.connection.connection.to_io.shutdown
  equal(%w[other work], queue.tubes.watched.map(&:name).sort)
  queue.always('reserve-mode', 'fifo')
  twin = queue.jobs.find(work.put('a', idp: 'twin')[:id])
  queue.exchange('reprioritize', twin.id, 7)
  queue.exchange('move', twin.id, 'other')
  equal([7, 'other'], [twin.stats.pri, twin.stats.tube])
  second = queue.jobs.find(work.put('a', idp: 'twin')[:id])
  refused(Beaneater::ExistsError) { queue.exchange('move', second, 'other') }
  queue.tubes.ignore('other')
  work.reserve(5).bury
  equal(['1', 1], [queue.exchange('flush-buried', 'work')[:id], queue.tubes['other'].clear])
end

# A connection of such a client watches nothing at first.
def rights_to_one_tube(queue)
  mail = queue.tubes['mail']
  equal([], queue.tubes.watched)
  mail.put('to: ann')
  queue.tubes.watch!('mail')
  # The connection is lost: the next one watches the same.
  queue.connection.connection.to_io.shutdown
  job = queue.reserve_batch(1, 5)[0]
  equal(['to: ann', %w[mail]], [job.body, queue.tubes.watched.map(&:name)])
  job.delete
  refused(Beaneater::ForbiddenError) { queue.tubes['orders'].put('x') }
  queue.close
end

def all_of(queue)
  work = queue.tubes['work']
  queue.tubes.watch!('work')
  tags(queue, work)
  batches(queue, work)
  session(queue, work)
  fields(queue, work)
  tubes(queue, work)
  queue.close
end

ca = { ca_file: ENV.fetch('BEANSTALKD_CA') }
all_of(Beaneater.new(address('BEANSTALKD_PORT')))
all_of(Beaneater.new(address('BEANSTALKD_GUARDED_PORT'), token: TOKEN))
all_of(Beaneater.new(address('BEANSTALKD_TLS_PORT'), tls: ca, token: TOKEN))
all_of(Beaneater.new("localhost:#{ENV.fetch('BEANSTALKD_TLS_PORT')}", tls: ca, token: TOKEN))
rights_to_one_tube(Beaneater.new(address('BEANSTALKD_GUARDED_PORT'), token: ENV.fetch('BEANSTALKD_TOKEN_FOR_MAIL')))
certificate = { cert: OpenSSL::X509::Certificate.new(File.read(ENV.fetch('BEANSTALKD_CERTIFICATE'))),
                key: OpenSSL::PKey.read(File.read(ENV.fetch('BEANSTALKD_KEY'))) }
Beaneater.new(address('BEANSTALKD_MUTUAL_PORT'), tls: ca.merge(certificate)).tubes['work'].put('x')
guarded = address('BEANSTALKD_GUARDED_PORT')
refused(Beaneater::ForbiddenError) { Beaneater.new(guarded).tubes['work'].put('x') }
refused(Beaneater::NotConnected, Beaneater::UnauthorizedError) { Beaneater.new(guarded, token: 'x' * 40) }
refused(Beaneater::NotConnected, OpenSSL::SSL::SSLError) do
  Beaneater.new(address('BEANSTALKD_TLS_PORT'), tls: {}, token: TOKEN)
end
puts 'clients: beaneater with the additions: good'
