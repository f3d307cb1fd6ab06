# Makes methods, runs them and forgets them.
def source(n)
  <<~SOURCE
    class Made#{n}
      def go#{n}(rounds)
        outer#{n}(rounds)
      end

      def outer#{n}(rounds)
        middle#{n}(rounds) + 1
      end

      def middle#{n}(rounds)
        x = i = 0
        while i < rounds
          x += inner#{n}(i)
          i += 1
        end
        x
      end

      def inner#{n}(i)
        x = i
        j = 0
        while j < 20
          x = (x * 31 + j) & 0xFFFF
          j += 1
        end
        x
      end
    end
  SOURCE
end

def churn
  number = 0
  loop do
    number = (number + 1) % 1_000_000
    n = format("%06d", number)
    eval(source(n), TOPLEVEL_BINDING, "made#{n}.rb")
    made, go = Object.const_get("Made#{n}").new, :"go#{n}"
    (number % 4 == 0 ? 300 : 5).times { made.public_send(go, 20) }
    Object.send(:remove_const, "Made#{n}")
    GC.start if number % 50 == 0
  end
end

puts %({"pid": #{Process.pid}})
$stdout.flush
churn
