# Stands still where dump_test.go expects it, one thread asleep and one at work.
def spin
  loop { 100.times { |i| i * i } }
end

class Place
  def wait(n)
    return wait(n - 1) if n > 0
    puts "ready"
    STDOUT.flush
    sleep 1000
  end
end

def outer
  [1].each { |_| Place.new.wait(3) }
end

Thread.new { spin }
outer
