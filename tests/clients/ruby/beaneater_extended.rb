# beaneater with what this server adds to the protocol: TLS, log-in, tags of `put`, fields, batches, sessions.
#
# Copy this file beside your program, and require it. It needs beaneater 1.1 from the registry, and nothing else:
#
#   queue = Beaneater.new('queue.example.org:11301', tls: {}, token: token)
#   queue.tubes['orders'].put('order 7', idp: 'order-7', exp: 3600)
#   queue.delete_batch(queue.reserve_batch(100, 5))

require 'beaneater'
require 'openssl'

class Beaneater
  ForbiddenError = Class.new(UnexpectedResponse)    # the access rules do not permit this command to this client
  UnauthorizedError = Class.new(UnexpectedResponse) # the token is nobody's; it is the cause of NotConnected
  ExistsError = Class.new(UnexpectedResponse)       # the other tube has a job with the same idempotency key
  UnexpectedResponse::ERROR_STATES.push('FORBIDDEN', 'UNAUTHORIZED', 'EXISTS')

  # `tls` has parameters for OpenSSL::SSL::SSLContext#set_params: ca_file; cert and key of a client. `token` logs in.
  def initialize(address = nil, **options) = @connection = Connection.new(address, **options)

  # Sends a command, and a body after it, and returns the reply: exchange('move', job, 'orders'). A space or a line end
  # in a word would change the command.
  def exchange(*words, body: nil)
    words = words.map { |word| (word.is_a?(Job) ? word.id : word).to_s }
    wrong = words.find { |word| !word.match?(%r{\A[-+/;.$_()A-Za-z0-9:]+\z}) }
    raise ArgumentError, "not a name for the server: #{wrong.inspect}" if wrong

    connection.transmit([words.join(' '), body].compact.join("\r\n"))
  end

  # The same, and again on each later connection: always('watch', 'orders', 5), always('reserve-mode', 'weighted').
  def always(*words) = exchange(*words).tap { connection.repeated.push(words.join(' ')) }
  # Keeps the jobs of this client for this many seconds if its connection is lost; how many it has.
  def session(name, grace) = Integer(always('session', name, grace)[:id])
  # Touches all jobs that this client has reserved; how many.
  def touch_all = Integer(exchange('touch-all')[:id])
  # From now on, jobs that are reserved have `fields`: tube, attempts, age, trace and others; text.
  def reserve_fields(*names) = always('reserve-fields', *names).then { connection.fields = names }
  # Up to n jobs of the watched tubes. With a timeout, waits that many seconds for the first.
  def reserve_batch(n, *timeout) = exchange('reserve-batch', n, *timeout)[:jobs].map { |job| Job.new(self, job) }
  # How many were deleted, and how many were not found.
  def delete_batch(jobs) = jobs.empty? ? [0, 0] : exchange('delete-batch', *jobs)[:words].drop(1).map(&:to_i)

  class Tube
    # Tags are options beside pri, delay and ttr: idp: 'order-7' or 'order-7:60', con: 'customer-9:2', grp: 'import',
    # aft: 'import', exp: 3600. If the job was there, the response has its :state: READY, RESERVED and so on.
    def put(body, pri: config.default_put_pri, delay: config.default_put_delay, ttr: config.default_put_ttr, **tags)
      body = config.job_serializer.call(body)
      words = [pri, delay, ttr, body.bytesize, *tags.map { |tag, value| "#{tag}:#{value}" }]
      safe_use { client.exchange('put', *words, body: body) }.then { |reply| reply.merge(state: reply[:words][2]) }
    end

    # Deletes all jobs of the tube, those that are reserved included; how many.
    def clear = Integer(client.exchange('flush-tube', name)[:id])
  end

  Job.prepend(Module.new do
    attr_reader :fields # what `reserve_fields` has asked for

    def initialize(client, response)
      super
      @fields = response[:fields]
    end
  end)

  Connection.prepend(Module.new do
    attr_reader :repeated # lines that are sent again after a reconnect
    attr_accessor :fields # what RESERVED lines say of their jobs

    def initialize(address, tls: nil, token: nil)
      @tls, @token, @repeated, @fields = tls, token, [], []
      super(address)
    end

    private

    def establish_connection
      super
      @connection = secured(@connection) if @tls
      @connection.write("auth #{@token}\r\n") if @token
      parse_response('auth', @connection.readline) if @token
    end

    # The response also has all words of the reply, the fields of a job, and the jobs of a batch.
    def parse_response(command, line)
      words = line.split
      values = words[0] == 'RESERVED' ? words.slice!(3..) : []
      response = super(command, values.empty? ? line : words.join(' ')) # beaneater takes the last word for the size
      jobs = words[0] == 'RESERVED_BATCH' ? Integer(words[1]) : 0
      jobs = Array.new(jobs) { parse_response(command, @connection.readline) }
      response[:body] ||= [] if words[0] == 'OK' # an empty list, as of the watched tubes without a right to `default`
      response.merge(words: words, fields: fields.zip(values).to_h, jobs: jobs)
    end

    def secured(socket)
      context = OpenSSL::SSL::SSLContext.new.tap { |one| one.set_params(@tls) }
      OpenSSL::SSL::SSLSocket.new(socket, context).tap do |secure|
        secure.hostname = host if host.match?(/[a-z]/i) # an address is no name to ask for
        secure.sync_close = true
        secure.connect
        secure.post_connection_check(host)
      end
    end

    def _initialize_tubes
      super
      repeated.each { |line| transmit(line, init: false) }
    end
  end)
end
