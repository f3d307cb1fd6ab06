// A service in JavaScript that answers a little, then waits. The argument is parts of a CPU in thousandths.
const share = Number(process.argv[2] || 20) / 1000;

function make(n) {
  return Array.from({length: n}, (_, i) => ({id: Math.floor(Math.random() * 1e6), name: 'customer ' + i % 50}));
}

function rank(orders) {
  return orders.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.id - b.id));
}

function serve() {
  return JSON.parse(JSON.stringify(rank(make(100)))).filter(o => /1.*3/.test(o.name)).length;
}

function turn() {
  const began = process.cpuUsage();
  for (let i = 0; i < 40; i++) serve();
  const used = process.cpuUsage(began);
  setTimeout(turn, (used.user + used.system) / 1000 / share * (0.5 + Math.random()));
}

turn();
