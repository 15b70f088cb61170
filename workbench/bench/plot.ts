// One SVG per row: every round of every entrant is a dot, to show the spread as well as the median.

import type { Result, Round } from './measure.ts';

const width = 640;
const height = 240;
const left = 90;
const bottom = 40;
const colours = ['#0b6e4f', '#c1440e', '#2a4b8d', '#8d6a9f', '#7a7a00'];

export function plot(result: Result): string {
  const names = Object.keys(result.rounds[0] ?? {}) as (keyof Round)[];
  const top = Math.max(...result.rounds.flatMap((round) => names.map((name) => round[name] ?? 0))) * 1.1;
  const x = (round: number): number => left + ((round + 0.5) / result.rounds.length) * (width - left - 20);
  const y = (value: number): number => height - bottom - (value / top) * (height - bottom - 40);
  const ticks = [0, top / 2, top].map((value) => {
    const at = y(value).toFixed(1);
    return `<text x="${left - 8}" y="${at}" text-anchor="end" dominant-baseline="middle">${value.toPrecision(3)}</text>
<line x1="${left}" x2="${width - 20}" y1="${at}" y2="${at}" stroke="#ddd"/>`;
  });
  const dots = names.flatMap((name, index) =>
    result.rounds.map((round, at) => {
      const value = round[name] ?? 0;
      return `<circle cx="${x(at).toFixed(1)}" cy="${y(value).toFixed(1)}" r="4" fill="${colours[index % colours.length]}"/>`;
    }),
  );
  const legend = names.map((name, index) => {
    const colour = colours[index % colours.length];
    return `<text x="${left + index * 110}" y="${height - 12}" fill="${colour}">● ${name}</text>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">`,
    `<text x="${left}" y="20" font-size="14">${result.id} (${result.unit}), one dot per round</text>`,
    ...ticks,
    ...dots,
    ...legend,
    '</svg>\n',
  ].join('\n');
}
