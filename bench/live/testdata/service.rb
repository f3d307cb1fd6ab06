# A server that does some work for each request, on a port that it prints.
require 'webrick'
require 'json'
require 'erb'
require 'set'
require 'digest'
require 'zlib'
require 'openssl'
require 'stringio'
require 'time'
require 'forwardable'
require 'bigdecimal'
require 'csv'
require 'yaml'
require 'strscan'
require 'pstore'

ITEMS = (0...1000).map { |i| { 'id' => i, 'name' => "item #{i}", 'price' => i * 1.19, 'tags' => ["a#{i % 7}", "b#{i % 11}"] } }
TEXT = ITEMS.map { |i| format('%05d %s %.2f', i['id'], i['name'], i['price']) }.join("\n")

Item = Struct.new(:id, :name) do
  include Comparable
  def <=>(other) = name <=> other.name
  def to_s = "#{id}: #{name.inspect}"
end

class Shape
  extend Forwardable
  def_delegators :@list, :size, :<<
  attr_accessor :side
  def initialize(side) = (@side, @list = side, [])
  def area = @side * @side
  define_method(:perimeter) { 4 * @side }
  def method_missing(name, *rest) = name.end_with?('!') ? name.to_s.size + rest.sum : super
  def respond_to_missing?(name, all = false) = name.end_with?('!') || super
end

class Circle < Shape
  def area = super * Math::PI
end

# refined for this file alone
module Shout
  refine(String) { def shout = upcase + '!' }
end
using Shout

TEMPLATE = ERB.new('<ul><% items.each do |i| %><li class="<%= i["tags"].first %>"><%= ERB::Util.h(i["name"]) %></li><% end %></ul>')

def numbers(limit)
  return enum_for(:numbers, limit) unless block_given?
  limit.times { |i| yield i * i }
end

def fibonacci(n) = n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2)

def deep(n)
  raise ArgumentError, 'refused' if n.zero?
  deep(n - 1)
ensure
  n += 1
end

LOCK = Mutex.new
CACHE = Hash.new { |hash, key| hash[key] = key.to_s * 2 }

JOBS = {
  json: ->(seed) { JSON.parse(JSON.generate(ITEMS[0, 200])).size + JSON.pretty_generate(ITEMS[seed % 100, 50]).size },
  regex: ->(_) { TEXT[0, 20_000].scan(/^(\d{5}) (\w+) (\d+) ([0-9.]+)$/).size + TEXT[0, 6000].gsub(/item (\d+)/) { $1.reverse }.size },
  erb: ->(_) { items = ITEMS[0, 100]; TEMPLATE.result(binding).size },
  sort: ->(seed) { list = ITEMS.shuffle(random: Random.new(seed)); list.sort_by { |i| i['name'] }.first['id'] + list.sort { |a, b| a['id'] <=> b['id'] }.first['id'] + list.map { |i| Item.new(i['id'], i['name']) }.min.id },
  chains: ->(_) { ITEMS.lazy.select { |i| i['id'].odd? }.map { |i| i['price'] }.first(200).sum + ITEMS.group_by { |i| i['tags'][0] }.transform_values(&:size).values.sum + ITEMS.each_slice(7).sum { |s| s.inject(0) { |a, i| a + i['id'] } } },
  enumerators: ->(_) { e = numbers(150); total = 0; begin; loop { total += e.next }; end; total + numbers(500).each_with_index.map { |a, i| a * i }.sum },
  fibers: ->(seed) { f = Fiber.new { 100.times { |i| Fiber.yield fibonacci(8) + i + seed } }; (0...100).sum { f.resume } },
  raising: ->(_) { (0...40).sum { |i| begin; deep(10 + i % 10); rescue ArgumentError => e; e.backtrace.size; end } },
  caught: ->(_) { (0...200).sum { |i| catch(:done) { 100.times { |j| throw :done, j if j > i % 50 }; 1 } } },
  strings: ->(seed) { s = +''; 1000.times { |i| s << (97 + i % 26).chr << i.to_s }; s.shout.tr('A-C', 'x').sub(/Z9+/, '').unpack('C*').sum + s.each_char.tally.size + s.encode('UTF-16').size + s[seed % 50, 20].succ.hash % 3 },
  digests: ->(_) { Digest::SHA256.hexdigest(TEXT).size + Digest::MD5.digest(TEXT).size + OpenSSL::HMAC.hexdigest('SHA256', 'k', TEXT).size + OpenSSL::Digest.digest('SHA512', TEXT).size },
  zip: ->(_) { Zlib::Inflate.inflate(Zlib::Deflate.deflate(TEXT)).size + Zlib.crc32(TEXT) },
  classes: ->(seed) { (0...800).sum { |i| s = i % 2 == 0 ? Circle.new(i) : Shape.new(i); s << i; s.area + s.perimeter + s.size + s.shout!(seed) + s.public_send(:side) } },
  evaluated: ->(seed) { eval("(0...200).sum { |i| i ^ #{seed} }") + Object.new.instance_eval { (0...100).sum { |i| i.hash & 3 } } },
  sets: ->(_) { a = ITEMS.to_set { |i| i['name'] }; (a & Set.new(%w[x y])).size + CACHE[rand(1000)].size + ITEMS.each_with_object(Hash.new(0)) { |i, h| h[i['tags'].last] += 1 }.size },
  locks: ->(_) { n = 0; 4.times.map { Thread.new { 50.times { LOCK.synchronize { n += fibonacci(5) } } } }.each(&:join); n },
  queues: ->(_) { q = Queue.new; t = Thread.new { 50.times { |i| q << ITEMS[i].to_s } }; r = 50.times.sum { q.pop.size }; t.join; r },
  numbers: ->(seed) { (1..200).inject(:*).to_s.size + (1..60).sum { |i| Rational(1, i + seed % 9) }.to_f + BigDecimal('2').sqrt(60).to_i + Complex(1, 2).abs + 3**400 % 7 },
  fibonacci: ->(seed) { fibonacci(15 + seed % 4) },
  csv: ->(_) { CSV.parse(CSV.generate { |c| ITEMS[0, 100].each { |i| c << i.values_at('id', 'name') } }).size },
  yaml: ->(_) { YAML.load(ITEMS[0, 30].to_yaml).size + Marshal.load(Marshal.dump(ITEMS)).size },
  times: ->(seed) { (0...100).sum { |i| Time.at(i * 86_400 * (seed % 9 + 1)).utc.strftime('%A %d %B %Y').size + Time.parse('2020-01-02 03:04:05').min } },
  scanned: ->(_) { s = StringScanner.new(TEXT[0, 8000]); n = 0; until s.eos?; n += 1 if s.scan(/\w+/); s.getch; end; n },
}.to_a

served = 0
server = WEBrick::HTTPServer.new(Port: 0, BindAddress: '127.0.0.1', AccessLog: [], Logger: WEBrick::Log.new(File::NULL))
server.mount_proc('/') do |_, response|
  seed = LOCK.synchronize { served += 1 }
  response.body = JSON.generate(one: JOBS[seed % JOBS.size][1].call(seed).to_s, two: JOBS[seed / 7 % JOBS.size][1].call(seed).to_s)
end
server.listeners.each { |s| s.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) } # or most of the time is waited for
puts server.listeners.first.addr[1]
$stdout.flush
server.start
