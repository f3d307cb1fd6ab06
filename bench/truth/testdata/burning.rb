# Burns CPU in functions of known names, and logs how much.
require "json"

SLOT = 10_000_000
SCAN, FIRST, SECOND, IN_PARSE, IN_STORE, STORE, RARE = *1..7
STACKS = ["", "run;Object#scan:loop", "run;Object#parse:first", "run;Object#parse:second", "run;Object#parse;Object#hashed:loop",
          "run;Object#store;Object#hashed:loop", "run;Object#store:loop", "run;Object#rare:loop"]

def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond)

$slots = {}
$burned = 0

# charge gives the CPU time since it was last called to a site.
def charge(site)
  at = monotonic / SLOT
  now = cpu
  slot = ($slots[at] ||= [0] * STACKS.size)
  slot[site] += now - $burned
  $burned = now
end

def scan(n)
  x = i = 11
  while i < n do x = (x * 31 + i) & 0xFFFF; i += 1 end # burns loop
  x
end

def rare(n)
  x = i = 13
  while i < n do x = (x * 31 + i) & 0xFFFF; i += 1 end # burns loop
  x
end

def hashed(n)
  x = i = 17
  while i < n do x = (x * 31 + i) & 0xFFFF; i += 1 end # burns loop
  x
end

def parse(n)
  x = i = 0
  while i < n do x = (x * 31 + i) & 0xFFFF; i += 1 end # burns first
  charge(FIRST)
  i = n / 2
  while i > 0 do x = (x * 31 + i) & 0xFFFF; i -= 1 end # burns second
  charge(SECOND)
  if x % 4 == 0
    hashed(n)
    charge(IN_PARSE)
  end
  x
end

def store(n)
  hashed(n)
  charge(IN_STORE)
  x = i = 23
  while i < n / 4 do x = (x * 31 + i) & 0xFFFF; i += 1 end # burns loop
  charge(STORE)
  x
end

def run(size, limit)
  random = Random.new(7)
  while monotonic < limit
    u = random.rand(1000)
    n = random.rand(size / 4..size * 7 / 4)
    charge(0)
    if u < 15
      rare(n)
      charge(RARE)
    elsif u < 150
      store(n)
    elsif u < 450
      parse(n)
    else
      scan(n)
      charge(SCAN)
    end
  end
end

scan(10_000)
before = cpu
scan(100_000)
size = 100_000 * 200_000 / [cpu - before, 1].max
start = monotonic
puts JSON.generate(victim: "ruby", pid: Process.pid, tid: Process.pid, slot: SLOT, start: start, stacks: STACKS)
$stdout.flush
$burned = cpu
run(size, start + (ARGV[0].to_f * 1e9).to_i)
$slots.keys.sort.each { |at| puts JSON.generate(at: at * SLOT, ns: $slots[at]) }
puts JSON.generate(end: monotonic, cpu: $burned)
