# beaneater with what this server adds to the protocol: TLS, log-in, tags of `put`, batches, weights, whole tubes.
#
# Copy this file beside your program, and require it. It needs beaneater 1.1 from the registry, and nothing else:
#
#   queue = Beaneater.new('queue.example.org:11301', tls: {}, token: token)
#   queue.tubes['orders'].put('order 7', idp: 'order-7', exp: 3600)
#   queue.jobs.delete_batch(queue.tubes.reserve_batch(100, 5))

require 'beaneater'
require 'ipaddr'
require 'openssl'

class Beaneater
  ForbiddenError = Class.new(UnexpectedResponse)    # the access rules do not permit this command to this client
  UnauthorizedError = Class.new(UnexpectedResponse) # the token is nobody's; it is the cause of NotConnected
  ExistsError = Class.new(UnexpectedResponse)       # the other tube has a job with the same idempotency key
  UnexpectedResponse::ERROR_STATES.push('FORBIDDEN', 'UNAUTHORIZED', 'EXISTS')

  # The value as part of a command line. A space or a line end in it would change the command.
  def self.word(value)
    return value if value.to_s.match?(%r{\A[-+/;.$_()A-Za-z0-9:]+\z})

    raise ArgumentError, "not a name for the server: #{value.inspect}"
  end

  module ExtendedClient
    # `tls` has the parameters of OpenSSL::SSL::SSLContext#set_params: ca_file, and cert and key if the server asks for
    # them. `token` logs in first.
    def initialize(address = nil, **options)
      @connection = Connection.new(address, **options)
    end
  end

  module ExtendedConnection
    attr_reader :repeated # lines that are sent again after a reconnect
    attr_accessor :fields # what RESERVED lines say of their jobs

    def initialize(address, tls: nil, token: nil)
      @tls, @token, @repeated, @fields = tls, token, [], []
      super(address)
    end

    protected

    def establish_connection
      super
      @connection = secured(@connection) if @tls
      return unless @token

      @connection.write("auth #{@token}\r\n")
      parse_response('auth', @connection.readline)
    end

    # All words of the reply, the fields of a job, and the jobs of a batch are in the response.
    def parse_response(command, line)
      words = line.split
      values = words[0] == 'RESERVED' ? words.slice!(3..) : []
      response = super(command, values.empty? ? line : words.join(' ')) # beaneater takes the last word for the size
      response.update(words: words, fields: fields.zip(values).to_h)
      if response[:status] == 'RESERVED_BATCH'
        response[:jobs] = Array.new(Integer(response[:id])) { parse_response(command, @connection.readline) }
      end
      response
    end

    private

    def secured(socket)
      context = OpenSSL::SSL::SSLContext.new
      context.set_params(@tls)
      OpenSSL::SSL::SSLSocket.new(socket, context).tap do |secure|
        secure.hostname = host unless (IPAddr.new(host) rescue false)
        secure.sync_close = true
        secure.connect
        secure.post_connection_check(host)
      end
    end

    def _initialize_tubes
      super
      repeated.each { |line| transmit(line, init: false) }
    end
  end

  module ExtendedTube
    # Tags are options beside pri, delay and ttr: idp: 'order-7' or 'order-7:60', con: 'customer-9:2', grp: 'import',
    # aft: 'import', exp: 3600. If the job was there, the response has its :state: READY, RESERVED, DELAYED, BURIED or
    # DELETED.
    def put(body, pri: config.default_put_pri, delay: config.default_put_delay, ttr: config.default_put_ttr, **tags)
      words = tags.map { |tag, value| " #{Beaneater.word(tag)}:#{Beaneater.word(value)}" }.join
      body = config.job_serializer.call(body)
      response = safe_use { transmit("put #{pri} #{delay} #{ttr} #{body.bytesize}#{words}\r\n#{body}") }
      response.merge(state: response[:words][2])
    end

    # Deletes all jobs of the tube, those that are reserved included, or the buried ones alone; how many.
    def flush = Integer(transmit("flush-tube #{name}")[:id])
    def flush_buried = Integer(transmit("flush-buried #{name}")[:id])
    alias clear flush
  end

  module ExtendedTubes
    # Up to n jobs of the watched tubes. With a timeout, waits so many seconds for the first.
    def reserve_batch(n, timeout = nil)
      transmit(['reserve-batch', n, timeout].compact.join(' '))[:jobs].map { |job| Job.new(client, job) }
    end

    def watch_weighted(name, weight)
      watch(name)
      repeat("watch #{Beaneater.word(name)} #{weight}")
    end

    # How this client chooses among its tubes: fifo, weighted or weighted-fair.
    def reserve_mode(mode) = repeat("reserve-mode #{Beaneater.word(mode)}")

    # From now on, jobs that are reserved have `fields`: tube, attempts, timeouts, releases, age, pri, ttr, trace.
    def reserve_fields(*names)
      repeat(['reserve-fields', *names.map { |name| Beaneater.word(name) }].join(' '))
      client.connection.fields = names
    end

    def repeat(line)
      transmit(line)
      client.connection.repeated.push(line)
    end
  end

  module ExtendedJobs
    # How many were deleted, and how many were not found.
    def delete_batch(jobs)
      ids = jobs.map { |job| job.respond_to?(:id) ? job.id : job }
      transmit("delete-batch #{ids.join(' ')}")[:words].drop(1).map(&:to_i)
    end

    # Touches all jobs that this client has reserved; how many.
    def touch_all = Integer(transmit('touch-all')[:id])

    # Keeps this connection's jobs for so many seconds if it is lost; how many it has. Say it again on each new one.
    def session(name, grace) = Integer(transmit("session #{Beaneater.word(name)} #{Float(grace)}")[:id])
  end

  module ExtendedJob
    attr_reader :fields # what `reserve_fields` has asked for; text

    def initialize(client, response)
      super
      @fields = response[:fields]
    end

    def move(tube) = transmit("move #{id} #{Beaneater.word(tube)}")
    def reprioritize(pri) = transmit("reprioritize #{id} #{pri}")
  end

  prepend ExtendedClient
  Connection.prepend ExtendedConnection
  Tube.prepend ExtendedTube
  Tubes.prepend ExtendedTubes
  Jobs.prepend ExtendedJobs
  Job.prepend ExtendedJob
end
