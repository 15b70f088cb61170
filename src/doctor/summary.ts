// From findings to features: which work here, and whether the embedded default does.

import { type Feature, type Finding, features } from './finding.ts';

/**
 * `partly`: it works, with less than it could. `unknown`: something it needs could not be probed.
 */
export type Status = 'works' | 'partly' | 'no' | 'unknown';

export interface FeatureSummary {
  readonly feature: Feature;
  readonly title: string;
  readonly status: Status;
  /** The ids of the findings that are the reason. */
  readonly because: readonly string[];
}

/** `forbidden`: it may work for a user with more privileges. */
export type Readiness = 'ready' | 'forbidden' | 'unsupported';

/** What `millrace demo` needs, and what a user gets who configures nothing. */
const embeddedDefault: readonly Feature[] = ['lab', 'connect'];

export function summarize(findings: readonly Finding[]): readonly FeatureSummary[] {
  return (Object.keys(features) as readonly Feature[]).map((feature) => {
    const { status, because } = statusOf(feature, findings);
    return { feature, title: features[feature], status, because: because.map((finding) => finding.id) };
  });
}

export function readiness(findings: readonly Finding[]): Readiness {
  const missing = embeddedDefault.flatMap((feature) =>
    notYes(findings, (finding) => finding.neededBy.includes(feature)),
  );
  if (missing.length === 0) return 'ready';
  return missing.some((finding) => finding.isForbidden) ? 'forbidden' : 'unsupported';
}

function statusOf(feature: Feature, findings: readonly Finding[]): { status: Status; because: readonly Finding[] } {
  const needed = notYes(findings, (finding) => finding.neededBy.includes(feature));
  const lacking = needed.filter((finding) => finding.answer === 'no');
  if (lacking.length > 0) return { status: 'no', because: lacking };
  if (needed.length > 0) return { status: 'unknown', because: needed };
  const wished = notYes(findings, (finding) => finding.improves.includes(feature));
  return { status: wished.length > 0 ? 'partly' : 'works', because: wished };
}

function notYes(findings: readonly Finding[], isMeant: (finding: Finding) => boolean): readonly Finding[] {
  return findings.filter((finding) => finding.answer !== 'yes' && isMeant(finding));
}
