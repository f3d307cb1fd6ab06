# Calls through every mechanism that Ruby has. Each call stands on a line of its own.
module Shop
  def self.burn(n)
    x = 0
    i = 0
    while i < n
      x = (x * 31 + i) % 1000003
      i += 1
    end
    x
  end

  class Tree
    include Comparable

    def descend(depth)
      if depth == 0
        return Shop.burn(3000)
      end
      descend(depth - 1)
    end

    def <=>(other)
      Shop.burn(500)
      0
    end

    def to_s
      Shop.burn(1000)
      "tree"
    end

    def each_twice
      yield 1
      yield 2
    end

    define_method(:defined) do |n|
      Shop.burn(n)
    end

    def method_missing(name, *arguments)
      Shop.burn(1000)
    end

    def respond_to_missing?(name, all = false) = true
  end

  module Mixed
    def mixed
      Shop.burn(1000)
    end
  end

  class User
    include Mixed
  end
end

def mapping
  [1, 2, 3].map do |v|
    Shop.burn(500)
  end
end

def sorting(trees)
  trees.sort
end

def counting
  3.times do
    Shop.burn(500)
  end
end

def sorting_by
  [3, 1, 2].sort_by do |v|
    Shop.burn(500)
  end
end

def yielding(tree)
  tree.each_twice do |v|
    Shop.burn(1000)
  end
end

def printing(tree)
  "#{tree}"
end

def rescuing
  begin
    raise "wanted"
  rescue
    Shop.burn(1000)
  end
end

def evaluating
  eval("Shop.burn(1000)", nil, "evaluated", 1)
end

def fibers
  fiber = Fiber.new do
    Shop.burn(1000)
    Fiber.yield
    Shop.burn(1000)
  end
  fiber.resume
  fiber.resume
end

def lambdas
  f = ->(n) {
    Shop.burn(n)
  }
  f.call(1000)
end

def generating
  numbers = Enumerator.new do |all|
    all << Shop.burn(1000)
  end
  numbers.next
end

def long_one
  x = 0
  x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1
  x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1
  x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1
  x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1
  x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1
  x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1
  x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1
  x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1
  x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1
  x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1; x += 1

  Shop.burn(2000)
end

def round(tree, trees, user)
  tree.descend(10)
  mapping
  sorting(trees)
  counting
  sorting_by
  yielding(tree)
  printing(tree)
  rescuing
  evaluating
  fibers
  lambdas
  generating
  long_one
  tree.defined(1000)
  tree.anything
  user.mixed
end

def worker
  20.times do
    Shop.burn(3000)
  end
end

$stdout.puts "ready"
$stdout.flush
tree = Shop::Tree.new
trees = [Shop::Tree.new, Shop::Tree.new, Shop::Tree.new]
user = Shop::User.new
while true
  10.times do
    round(tree, trees, user)
  end
  thread = Thread.new do
    worker
  end
  thread.join
end
