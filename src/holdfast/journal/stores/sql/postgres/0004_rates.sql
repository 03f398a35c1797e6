-- compatible from: 3
-- Histories of rate rules that all processes keep to together: each window in hundredths.
CREATE TABLE holdfast.rates (
    tenant text NOT NULL,
    name text NOT NULL,
    length integer NOT NULL,
    slot bigint NOT NULL,
    amount bigint NOT NULL,
    PRIMARY KEY (tenant, name, length, slot)
);
ALTER TABLE holdfast.rates ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenants ON holdfast.rates
    USING (tenant = current_setting('holdfast.tenant', true));
