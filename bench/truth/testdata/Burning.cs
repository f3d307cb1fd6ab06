using System;
using System.Diagnostics;
using System.Runtime.InteropServices;
using System.Text;

namespace Atys.Victim {
	// Burns CPU in functions of known names, and logs how much.
	static class Burning {
		const long Slot = 10000000, Round = 250000; // ns
		const int Scan = 1, First = 2, Second = 3, InParse = 4, InStore = 5, Store = 6, Rare = 7;
		static readonly string[] Stacks = {
			"", "Atys.Victim.Burning.DoScan:loop", "Atys.Victim.Burning.DoParse:first", "Atys.Victim.Burning.DoParse:second",
			"Atys.Victim.Burning.DoHash:loop", "Atys.Victim.Burning.DoHash:loop", "Atys.Victim.Burning.DoStore:loop",
			"Atys.Victim.Burning.DoRare:loop"
		};

		struct Timespec { public long Seconds, Nanoseconds; }

		[DllImport("libc", EntryPoint = "clock_gettime")]
		static extern int ReadClock(int clock, out Timespec time);

		static long Read(int clock) {
			Timespec t;
			ReadClock(clock, out t);
			return t.Seconds * 1000000000 + t.Nanoseconds;
		}

		const int Monotonic = 1, ThreadTime = 3;
		static long[][] slots;
		static long start, burned, sink;

		// Charge gives the CPU time since it was last called to a site.
		static void Charge(int site) {
			long at = Math.Min((Read(Monotonic) - start) / Slot, slots.Length - 1);
			long now = Read(ThreadTime);
			slots[at][site] += now - burned;
			burned = now;
		}

		static long DoScan(int n) {
			long x = 11;
			for (int i = 0; i < n; i++) x = x * 6364136223846793005 + (x >> 7) + i;
			return x;
		}

		static long DoRare(int n) {
			long x = 13;
			for (int i = 0; i < n; i++) x = x * 6364136223846793005 + (x >> 7) + i;
			return x;
		}

		static long DoHash(int n) {
			long x = 17;
			for (int i = 0; i < n; i++) x = x * 6364136223846793005 + (x >> 7) + i;
			return x;
		}

		static long DoParse(int n) {
			long x = n;
			for (int i = 0; i < n; i++) x = x * 6364136223846793005 + (x >> 7) + i;
			Charge(First);
			for (int i = 0; i < n / 2; i++) x = x * 6364136223846793005 + (x >> 7) + i;
			Charge(Second);
			if ((x >> 20 & 3) == 0) {
				x += DoHash(n);
				Charge(InParse);
			}
			return x;
		}

		static long DoStore(int n) {
			long x = DoHash(n);
			Charge(InStore);
			for (int i = 0; i < n / 4; i++) x = x * 6364136223846793005 + (x >> 7) + i;
			Charge(Store);
			return x;
		}

		// Run burns until an instant, and gives the size of slices then: it follows
		// what the functions are compiled to, so that a round takes Round in the mean.
		static int Run(int size, long end) {
			var random = new Random(7);
			long last = burned;
			for (int rounds = 1; Read(Monotonic) < end; rounds++) {
				int u = random.Next(1000), n = random.Next(size / 4, size * 7 / 4);
				Charge(0);
				if (u < 15) {
					sink += DoRare(n);
					Charge(Rare);
				} else if (u < 150)
					sink += DoStore(n);
				else if (u < 450)
					sink += DoParse(n);
				else {
					sink += DoScan(n);
					Charge(Scan);
				}
				if (rounds % 64 == 0) {
					size = (int) Math.Ceiling(size * Math.Min(Math.Max(64.0 * Round / (burned - last + 1), 0.5), 2));
					last = burned;
				}
			}
			return size;
		}

		static void Main(string[] arguments) {
			long length = (long) (double.Parse(arguments[0]) * 1e9);
			slots = new long[(int) (length / Slot) + 1000][];
			for (int i = 0; i < slots.Length; i++)
				slots[i] = new long[Stacks.Length];
			start = Read(Monotonic);
			burned = Read(ThreadTime);
			int size = Run(1000, Read(Monotonic) + 3000000000); // until the functions are compiled, as far as they are
			foreach (long[] slot in slots)
				Array.Clear(slot, 0, slot.Length);
			start = Read(Monotonic) / Slot * Slot;
			int pid = Process.GetCurrentProcess().Id;
			Console.WriteLine("{{\"victim\":\"dotnet\",\"pid\":{0},\"tid\":{0},\"slot\":{1},\"start\":{2},\"stacks\":[\"{3}\"]}}",
				pid, Slot, start, string.Join("\",\"", Stacks));
			Console.Out.Flush();
			burned = Read(ThreadTime);
			Run(size, start + length);
			var text = new StringBuilder();
			for (int i = 0; i < slots.Length; i++) {
				long sum = 0;
				foreach (long ns in slots[i])
					sum += ns;
				if (sum > 0)
					text.AppendFormat("{{\"at\":{0},\"ns\":[{1}]}}\n", start + i * Slot, string.Join(",", slots[i]));
			}
			text.AppendFormat("{{\"end\":{0},\"cpu\":{1}}}\n", Read(Monotonic), burned);
			Console.Write(text);
		}
	}
}
