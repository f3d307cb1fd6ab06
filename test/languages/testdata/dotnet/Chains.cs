using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace Atys.Victim {
	// Work is what all others call: it burns CPU in a loop.
	static class Work {
		public static long Sink;

		[MethodImpl(MethodImplOptions.NoInlining)]
		public static void Burn() {
			long x = Sink;
			for (int i = 0; i < 20000; i++)
				x = x * 31 + i;
			Sink = x;
		}
	}

	class Box<T> {
		[MethodImpl(MethodImplOptions.NoInlining)]
		public T Keep(T value) {
			Work.Burn();
			return value;
		}
	}

	abstract class Shape {
		public abstract int Area(int side);
	}

	class Square : Shape {
		// without a frame of its own: small, and called through a table
		public override int Area(int side) { return side * side % 7; }
	}

	static class Chains {
		[MethodImpl(MethodImplOptions.NoInlining)]
		static void Descend(int depth) {
			if (depth == 0)
				Work.Burn();
			else
				Descend(depth - 1);
			Work.Sink++;
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static void Recursing() { Descend(20); Work.Sink++; }

		[MethodImpl(MethodImplOptions.NoInlining)]
		static void Boxing() {
			new Box<string>().Keep("x");
			new Box<int>().Keep(1);
			Work.Sink++;
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static void Calling() {
			Action one = () => Work.Burn();
			one();
			Work.Sink++;
		}

		static async Task Awaiting() {
			await Task.Yield();
			Work.Burn();
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static void Measuring(Shape shape) {
			int sum = 0;
			for (int i = 0; i < 20000; i++)
				sum += shape.Area(i);
			Work.Sink += sum;
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static void Sorting() {
			var list = new List<int>();
			for (int i = 0; i < 50; i++)
				list.Add(i * 7919 % 50);
			list.Sort(Compare);
			Work.Sink++;
		}

		static int Compare(int a, int b) {
			if ((a & 15) == 0)
				Work.Burn();
			return a.CompareTo(b);
		}

		static void Run() {
			var shape = new Square();
			for (;;) {
				Recursing();
				Boxing();
				Calling();
				Awaiting().Wait();
				Measuring(shape);
				Sorting();
			}
		}

		static void Main() {
			Console.WriteLine("ready");
			Run();
		}
	}
}
