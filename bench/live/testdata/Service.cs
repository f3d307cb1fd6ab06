using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.IO.Compression;
using System.Linq;
using System.Linq.Expressions;
using System.Net;
using System.Net.Sockets;
using System.Numerics;
using System.Reflection;
using System.Text;
using System.Text.RegularExpressions;
using System.Threading;
using System.Threading.Tasks;

namespace Live
{
    interface IPriced { double Price { get; } }

    sealed class Item : IPriced, IComparable<Item>, IEquatable<Item>
    {
        public readonly int Id;
        public string Name { get; }
        public double Price { get { return Id * 1.19; } }
        public Item(int id) { Id = id; Name = "item " + id; }
        public int CompareTo(Item o) { return string.CompareOrdinal(Name, o.Name); }
        public bool Equals(Item o) { return o != null && Name == o.Name; }
        public override bool Equals(object o) { return Equals(o as Item); }
        public override int GetHashCode() { return Name.GetHashCode(); }
        public override string ToString() { return string.Format(CultureInfo.InvariantCulture, "{0:D5} {1} {2:F2}", Id, Name, Price); }
    }

    struct Point
    {
        public double X, Y;
        public static Point operator +(Point a, Point b) { return new Point { X = a.X + b.X, Y = a.Y + b.Y }; }
    }

    // Does some work for each request, on a port that it prints.
    static class Service
    {
        static readonly Item[] Items = Enumerable.Range(0, 1000).Select(i => new Item(i)).ToArray();
        static readonly string Text = string.Join("\n", Items.Select(i => i.ToString()));
        static readonly byte[] Bytes = Encoding.UTF8.GetBytes(Text);
        static readonly Func<int, Task<object>>[] Jobs =
        {
            s => Done(Json()), s => Done(Matching()), s => Done(Sorting(s)), s => Done(Querying(s)), s => Done(Strings(s)), s => Done(Hashing()),
            s => Done(Zipping()), s => Done(Raising()), s => Done(Dictionaries(s)), s => Done(Generic(s)), s => Done(Iterating()), s => Done(Big(s)),
            s => Done(Reflecting()), s => Done(Locking(s)), s => Done(Numeric(s)), s => Done(Garbage()), s => Done(Fibonacci(18 + s % 4)),
            s => Done(Parallelly()), s => Done(Expressed(s)), Awaiting, Streaming,
        };
        static int next;

        static Task<object> Done(object result) { return Task.FromResult(result); }

        static object Json()
        {
            var b = new StringBuilder("[");
            foreach (var i in Items.Take(300)) b.Append("{\"id\":").Append(i.Id).Append(",\"name\":\"").Append(i.Name.Replace("\"", "\\\"")).Append("\",\"price\":").Append(i.Price).Append("},");
            return b.Append("null]").ToString().Length;
        }

        static readonly Regex Label = new Regex(@"^(?<id>\d{5}) (\w+) (\d+) ([0-9.]+)$", RegexOptions.Multiline);
        static readonly Regex Compiled = new Regex(@"item (\d+)", RegexOptions.Compiled);

        static object Matching()
        {
            return Label.Matches(Text.Substring(0, 8000)).Cast<Match>().Sum(m => m.Groups["id"].Length) + Compiled.Replace(Text.Substring(0, 6000), m => m.Groups[1].Value + "!").Length + Regex.Split(Text.Substring(0, 3000), @"\s+").Length;
        }

        static object Sorting(int seed)
        {
            var list = new List<Item>(Items);
            var random = new Random(seed);
            list.Sort((a, b) => (a.Id * 7919 % 1009).CompareTo(b.Id * 7919 % 1009));
            list.Sort();
            var numbers = Enumerable.Range(0, 2000).Select(i => random.Next()).ToArray();
            Array.Sort(numbers);
            return list[0].Id + numbers[7] + new SortedDictionary<string, int>(Items.Take(200).ToDictionary(i => i.Name, i => i.Id)).First().Value + list.BinarySearch(Items[5]);
        }

        static object Querying(int seed)
        {
            var by = from i in Items where i.Id % 3 != seed % 3 group i by i.Id % 7 into g orderby g.Key descending select new { g.Key, Sum = g.Sum(x => x.Price) };
            return by.ToList().Sum(x => x.Sum) + Items.OrderBy(i => i.Name).ThenByDescending(i => i.Id).Skip(5).First().Id + Items.Zip(Items.Skip(1), (a, b) => a.Id ^ b.Id).Aggregate(0, (a, x) => a + x) + Items.Select(i => i.Id % 97).Distinct().Count();
        }

        static object Strings(int seed)
        {
            var s = "";
            for (int i = 0; i < 300; i++) s += (char)('a' + i % 26) + i.ToString();
            return s.ToUpperInvariant().IndexOf("Z9", StringComparison.Ordinal) + s.Split('a').Length + string.Join("|", Text.Split('\n')).Length + s.Substring(seed % 50).PadLeft(2000).Trim().Length +
                Convert.ToBase64String(Bytes).Length + Encoding.Unicode.GetBytes(Text).Length + double.Parse("1.5e3", CultureInfo.InvariantCulture) + string.Compare(s, Text, StringComparison.OrdinalIgnoreCase) + Enumerable.Range(0, 200).Sum(i => (i * 1.7).ToString("R", CultureInfo.InvariantCulture).Length);
        }

        // FNV: this .NET finds no OpenSSL on newer systems, and has no other hashes.
        static object Hashing()
        {
            uint hash = 2166136261;
            for (int n = 0; n < 20; n++) foreach (byte b in Bytes) hash = (hash ^ b) * 16777619;
            return hash;
        }

        static object Zipping()
        {
            var to = new MemoryStream();
            using (var zip = new GZipStream(to, CompressionMode.Compress)) zip.Write(Bytes, 0, Bytes.Length);
            using (var back = new StreamReader(new GZipStream(new MemoryStream(to.ToArray()), CompressionMode.Decompress))) return back.ReadToEnd().Length;
        }

        static int Deep(int n)
        {
            if (n == 0) throw new InvalidOperationException("refused");
            try { return Deep(n - 1) + 1; } finally { n++; }
        }

        static object Raising()
        {
            int caught = 0;
            for (int i = 0; i < 10; i++)
            {
                try { caught += Deep(5 + i % 5); } catch (InvalidOperationException e) { caught += e.StackTrace.Length; }
                try { caught += new int[1][i + 1]; } catch (IndexOutOfRangeException) when (i > 3) { caught++; } catch (Exception) { caught--; }
            }
            return caught;
        }

        static readonly ConcurrentDictionary<string, Item> Cache = new ConcurrentDictionary<string, Item>();

        static object Dictionaries(int seed)
        {
            var d = new Dictionary<string, int>();
            var s = new HashSet<int>();
            var l = new LinkedList<int>();
            foreach (var i in Items) { int n; d.TryGetValue(i.Name, out n); d[i.Name] = n + seed; s.Add(i.Id % 97); l.AddFirst(i.Id); Cache.GetOrAdd("k" + (i.Id + seed) % 3000, k => new Item(k.Length)); }
            return d.Count + s.Count + l.First.Value + d.Values.Max();
        }

        static T Largest<T>(IEnumerable<T> all) where T : IComparable<T>
        {
            T best = default(T);
            foreach (var x in all) if (best == null || x.CompareTo(best) > 0) best = x;
            return best;
        }

        static object Generic(int seed)
        {
            var p = new Point();
            for (int i = 0; i < 5000; i++) p += new Point { X = i, Y = seed };
            return Largest(Items).Id + Largest(Enumerable.Range(0, 2000)) + Largest(Items.Select(i => i.Price)) + p.X + Items.Cast<IPriced>().Sum(i => i.Price);
        }

        static IEnumerable<int> Numbers(int n) { for (int i = 0; i < n; i++) yield return i * i; }
        static IEnumerable<int> Delegating(int n) { foreach (var i in Numbers(n)) yield return i + 1; }
        static object Iterating() { return Delegating(5000).Select(x => (long)x).Sum(); }

        static object Big(int seed)
        {
            var x = BigInteger.Pow(seed + 3, 200);
            decimal d = 0;
            for (int i = 1; i < 300; i++) d += 1m / (i + seed);
            return BigInteger.ModPow(x, 65537, BigInteger.Pow(2, 127) - 1).ToString().Length + d;
        }

        static object Reflecting()
        {
            int n = 0;
            var method = typeof(Item).GetMethod("CompareTo");
            for (int i = 0; i < 200; i++) n += (int)method.Invoke(Items[i], new object[] { Items[i + 1] }) + ((Item)Activator.CreateInstance(typeof(Item), i)).Id;
            return n + typeof(Service).GetMethods(BindingFlags.NonPublic | BindingFlags.Static).Sum(m => m.Name.Length + m.GetParameters().Length);
        }

        static object Expressed(int seed)
        {
            var x = Expression.Parameter(typeof(int));
            return Expression.Lambda<Func<int, int>>(Expression.Add(Expression.Multiply(x, Expression.Constant(3)), Expression.Constant(seed)), x).Compile()(7);
        }

        static readonly object Gate = new object();
        static int total;

        static object Locking(int seed)
        {
            for (int i = 0; i < 3000; i++) { lock (Gate) total += i; Interlocked.Add(ref total, seed); }
            return total;
        }

        static object Numeric(int seed)
        {
            var a = new double[60, 60];
            double sum = 0;
            for (int i = 0; i < 60; i++) for (int j = 0; j < 60; j++) a[i, j] = Math.Sin(i * j + seed) + Math.Pow(1.01, j);
            for (int i = 0; i < 60; i++) for (int j = 0; j < 60; j++) for (int k = 0; k < 20; k++) sum += a[i, k] * a[k, j];
            return sum;
        }

        static object Garbage()
        {
            var kept = new object[100];
            for (int i = 0; i < 20000; i++) kept[i % 100] = i % 3 == 0 ? (object)new byte[64 + i % 128] : i;
            return kept.Length;
        }

        static int Fibonacci(int n) { return n < 2 ? n : Fibonacci(n - 1) + Fibonacci(n - 2); }

        static object Parallelly()
        {
            int n = 0;
            Parallel.For(0, 500, i => Interlocked.Add(ref n, Items[i].ToString().Length));
            return n + Items.AsParallel().Where(i => i.Id % 3 == 0).Sum(i => i.Price);
        }

        static async Task<int> Step(int n)
        {
            if (n == 0) { await Task.Yield(); return 1; }
            return 1 + await Step(n - 1);
        }

        static async Task<object> Awaiting(int seed)
        {
            var all = await Task.WhenAll(Step(10), Step(20), Task.Run(() => Fibonacci(15)));
            await Task.Delay(1);
            return all.Sum() + seed;
        }

        static async Task<object> Streaming(int seed)
        {
            int n = seed;
            using (var reader = new StringReader(Text)) for (string line; (line = await reader.ReadLineAsync()) != null;) n += line.Length;
            return n;
        }

        static async Task Converse(TcpClient client)
        {
            using (client)
            using (var reader = new StreamReader(client.GetStream()))
                for (string line; (line = await reader.ReadLineAsync()) != null;)
                {
                    if (line.Length > 0) continue; // of the request's head
                    int seed = Interlocked.Increment(ref next);
                    var body = Encoding.UTF8.GetBytes(await Jobs[seed % Jobs.Length](seed) + "\n" + await Jobs[seed / 7 % Jobs.Length](seed));
                    var head = Encoding.ASCII.GetBytes("HTTP/1.1 200 OK\r\nContent-Length: " + body.Length + "\r\n\r\n");
                    await client.GetStream().WriteAsync(head, 0, head.Length);
                    await client.GetStream().WriteAsync(body, 0, body.Length);
                }
        }

        static void Main()
        {
            var listener = new TcpListener(IPAddress.Loopback, 0);
            listener.Start();
            Console.WriteLine(((IPEndPoint)listener.LocalEndpoint).Port);
            while (true)
            {
                var client = listener.AcceptTcpClient();
                client.NoDelay = true;
                Task.Run(() => Converse(client)).ContinueWith(t => { if (t.IsFaulted) Console.Error.WriteLine(t.Exception); });
            }
        }
    }
}
