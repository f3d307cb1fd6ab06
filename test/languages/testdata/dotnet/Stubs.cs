using System;
using System.Runtime.CompilerServices;

namespace Atys.Victim
{
    interface IShape
    {
        int Area(int x);
    }

    class One : IShape { public int Area(int x) { return x; } }
    class Two : IShape { public int Area(int x) { return x + x; } }
    class Three : IShape { public int Area(int x) { return x * x; } }

    // Calls through an interface, one class after the other: the runtime's stubs find the method.
    static class Stubs
    {
        static readonly IShape[] shapes = { new One(), new Two(), new Three(), new One() };

        [MethodImpl(MethodImplOptions.NoInlining)]
        static int Calling(int n)
        {
            int sum = 0;
            for (int i = 0; i < n; i++)
            {
                sum += shapes[i & 3].Area(i);
            }
            return sum;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static int Around(int n)
        {
            return Calling(n) + 1;
        }

        static void Main()
        {
            Console.WriteLine("ready");
            while (true)
            {
                Around(1000);
            }
        }
    }
}
