package stories

// What stories are of. A change in one of these packages puts its stories first.
const (
	ofForming = "internal/loop internal/rules agent agent/start agent/cli agent/config api/... cmd/agent cmd/druid druid druid/control " +
		"druid/policy internal/cli leases manifests membership"
	ofData     = "agent/start agent/datadir/... agent/duties membership"
	ofPods     = "agent agent/launch/... agent/transport cmd/launch druid manifests"
	ofScale    = "agent/start agent/duties druid druid/policy leases membership"
	ofRemoval  = "agent/duties leases membership"
	ofBackups  = "agent/backups agent/cli/backup backup/... druid/snapshot internal/boltdb"
	ofRestore  = ofBackups + " agent/start agent/datadir/..."
	ofUpgrades = "agent/duties api/... druid internal/versions membership " + ofBackups
	ofMoving   = "agent/start agent/duties druid leases membership"
	ofDruid    = "cmd/druid druid druid/control druid/policy internal/crash leases"
	ofNodes    = "agent/launch/... agent druid leases"
	ofVolumes  = "api/... druid manifests"
	ofTLS      = "agent/access agent/certificates agent/transport druid druid/policy internal/pki internal/review manifests"
	ofEnds     = "agent/duties druid leases manifests"
	ofRecovery = "agent/start agent/survivor agent/datadir/... druid druid/policy leases"
)

// Table has a row for each story. Seconds of the core were measured on two cores next to others, with what the shorter intervals of the
// rig's agents save taken off; those of the others are added up from what they wait for. The ledger corrects both.
var Table = []Story{
	// The three promises: what was acknowledged is kept, a cluster is formed once, a quorum is never given away.
	{"TestClusterIsNeverFormedTwice", Core, Alongside, 3, 120, ofForming + " " + ofData},
	{"TestMemberHealsWhenItsDataIsLost", Core, Alongside, 3, 75, ofData},
	{"TestRemovalKeepsQuorum", Core, Alongside, 5, 110, ofRemoval},

	{"TestFaultsThatOverlapBriefly", Core, Alone, 3, 90, ofNodes + " " + ofData + " " + ofPods + " " + ofDruid},
	{"TestDruidAndAgentUpgrade", Core, Alone, 3, 65, ofPods + " " + ofDruid},
	{"TestCutOffPodNeverSharesVolume", Core, Alone, 3, 150, ofNodes + " agent/datadir/..."},
	{"TestAllVolumesLostFormFromBackups", Core, Alongside, 3, 80, ofRestore},
	{"TestQuorumIsRecoveredFromOneDiskOfThree", Core, Alongside, 3, 85, ofRecovery},
	{"TestRestoreInPlaceAndUndo", Core, Alongside, 3, 120, ofRecovery + " " + ofRestore},
	{"TestVersionChangeUnderLoad", Core, Alongside, 5, 60, ofUpgrades},
	{"TestClusterScalesThereAndBackUnderLoad", Core, Alongside, 9, 65, ofScale},
	{"TestRolloutStopsAtBadImage", Core, Alongside, 5, 105, ofPods},
	{"TestVolumesGrowUnderTheMembers", Core, Alongside, 5, 10, ofVolumes},
	{"TestClusterOutlivesItsProcesses", Core, Alongside, 3, 40, ofPods},
	{"TestPauseKeepsAcknowledgedWrites", Core, Alongside, 5, 45, ofScale},
	{"TestDeletedClusterLeavesVolumes", Core, Alongside, 3, 25, ofEnds},
	{"TestThreeMembersFormWithEveryMinorOfEtcd", Core, Alongside, 9, 20, ofForming + " internal/versions"},
	{"TestCertificatesRenewedUnderLoad", Core, Alongside, 5, 120, ofTLS},
	{"TestClusterIsDeletedWhileItForms", Core, Alongside, 3, 5, ofEnds},
	{"TestWhatCannotBeIsRefusedWithASentence", Core, Alongside, 1, 1, "api/..."},

	{"TestClusterOutlivesTheControlPlane", InTurn, Alone, 3, 65, ofNodes + " agent/start agent/duties"},
	{"TestTwoNodeDrainsWhileMembersJoin", InTurn, Alone, 7, 55, ofScale},
	{"TestReleaseUpgradeAndRollback", InTurn, Alone, 3, 240, ofPods + " " + ofDruid},
	{"TestHelmChangesDruidUnderAWriter", InTurn, Alone, 3, 300, ofPods + " " + ofDruid},
	{"TestBadAgentImageStopsAtFollower", InTurn, Alone, 3, 130, ofPods + " " + ofDruid},
	{"TestAuthoritiesAreReplacedByTime", InTurn, Alone, 5, 600, ofTLS + " leases"},
	{"TestKubernetesAPIServersServed", InTurn, Alone, 5, 560, ofTLS + " agent/duties"},
	{"TestNodePowerOffDuringRollout", InTurn, Alone, 3, 100, ofNodes + " " + ofPods},
	{"TestDeletionWithoutDruidAndNode", InTurn, Alone, 3, 60, ofEnds},
	{"TestDruidTakeoverDuringScaleChange", InTurn, Alone, 7, 80, ofScale + " " + ofDruid},
	{"TestDamagedFullAndStoreOutage", InTurn, Alongside, 3, 200, ofBackups},
	{"TestDamagedPageMovesLeadership", InTurn, Alongside, 3, 240, ofBackups + " agent/duties"},
	{"TestBackupsInAVolumeOfAllMembers", InTurn, Alongside, 6, 90, ofRestore + " manifests"},
	{"TestBackupsDespiteUnreadableRecord", InTurn, Alongside, 3, 40, ofBackups},
	{"TestClusterBeginsWithASnapshotFile", InTurn, Alongside, 4, 60, ofRestore},
	{"TestVersionsChangeThereAndBackUnderLoad", InTurn, Alongside, 5, 350, ofUpgrades},
	{"TestFiveEditsEndInTheLast", InTurn, Alongside, 5, 100, "druid druid/policy manifests"},
	{"TestUnexpectedMembersAreRemoved", InTurn, Alongside, 3, 120, ofRemoval},
	{"TestRandomEditsEndInTheLast", InTurn, Alongside, 7, 180, "druid druid/policy agent/duties manifests internal/versions"},
	{"TestRandomChangesOfScaleWithTwoFaults", InTurn, Alongside, 9, 60, ofScale},
	{"TestWrongVolumeRefusedWithoutLoss", InTurn, Alongside, 6, 140, ofData},
	{"TestSteadyClusterCostsFewRequests", InTurn, Alongside, 3, 150, "agent agent/duties druid leases"},
	{"TestClientsServedWithBrokenAgents", InTurn, Alongside, 3, 90, "agent agent/launch/... cmd/launch druid"},
	{"TestDifferingMemberReplaced", InTurn, Alongside, 3, 60, ofData + " agent/duties membership leases"},
	{"TestDifferingMembersOfFiveReplaced", InTurn, Alongside, 5, 150, ofData + " agent/duties membership leases"},
	{"TestDataOfThreeMembersThatDiffers", InTurn, Alongside, 3, 290, ofData + " agent/duties membership leases druid/policy"},
	{"TestTwoNodesOutOfServiceReturn", InTurn, Alone, 3, 130, ofRecovery + " " + ofNodes},
	{"TestNodeDiskAndVolumeWithoutClass", InTurn, Alongside, 1, 90, ofVolumes + " " + ofData},
	{"TestMembersInMemoryHealFromEachOther", InTurn, Alongside, 5, 110, ofData + " druid manifests"},
	{"TestRecoveredFromBackupsOnlyOnce", InTurn, Alongside, 3, 240, ofRecovery + " " + ofRestore},
	{"TestChosenMemberLostAroundForming", InTurn, Alongside, 6, 210, ofRecovery + " " + ofRestore},
	{"TestMajorityCutOffFromAPIStops", InTurn, Alone, 3, 180, ofRecovery},
	{"TestDruidKilledInEachRecoveryPhase", InTurn, Alone, 3, 190, ofRecovery + " " + ofDruid},
	{"TestRecordLostInEachRecoveryPhase", InTurn, Alongside, 3, 190, ofRecovery},
	{"TestMostDataUsedWhenAllLogsDamaged", InTurn, Alongside, 3, 150, ofRecovery},
	{"TestFragmentedDatabasesShrink", InTurn, Alongside, 3, 330, "agent agent/duties membership leases"},
	{"TestFullDatabasesServeAgain", InTurn, Alongside, 3, 780, "agent agent/duties membership leases"},
	{"TestFullDiskMemberServesAgain", InTurn, Alongside, 5, 150, ofData + " agent/launch/..."},
	{"TestLeaderClockSteps", InTurn, Alone, 5, 160, "agent agent/duties druid leases agent/backups"},
	{"TestSurvivorBehindBackup", InTurn, Alongside, 3, 210, ofRecovery + " " + ofRestore},
	{"TestRestoreIsWithdrawnInEveryPhase", InTurn, Alongside, 3, 200, ofRecovery + " " + ofRestore},
	{"TestMemoryMembersRecovered", InTurn, Alongside, 3, 150, ofRecovery + " " + ofRestore},
	{"TestAwayMembersGivenUpByApproval", InTurn, Alongside, 3, 270, ofRecovery},
	{"TestClientsCutOffUntilAdmitted", InTurn, Alongside, 3, 130, ofRecovery},
	{"TestTLSIsTurnedOnAndOffUnderAWriter", InTurn, Alongside, 5, 360, ofTLS + " agent/start"},
	{"TestBadSecretsOfAUserHarmNoMember", InTurn, Alongside, 3, 90, ofTLS},
	{"TestCertManagerRenewsUnderAWriter", InTurn, Alongside, 3, 260, ofTLS},
	{"TestAuthoritiesAreReplacedUnderAWriter", InTurn, Alongside, 7, 330, ofTLS + " agent/config leases"},
	{"TestUserAuthorityReplaced", InTurn, Alongside, 3, 240, ofTLS + " agent/config leases"},
	{"TestIssuerRootReplaced", InTurn, Alongside, 3, 300, ofTLS + " agent/config leases"},
	{"TestAuthenticationIsTurnedOnUnderAWriter", InTurn, Alongside, 6, 120, ofTLS + " agent/backups agent/duties agent/start"},
	{"TestAuthBackupRestored", InTurn, Alongside, 6, 290, ofRestore + " agent/duties"},
	{"TestSnapshotGoesToAStoreOfItsOwn", InTurn, Alongside, 6, 80, "agent agent/access agent/backups agent/cli/backup druid/snapshot manifests"},
	{"TestOlderVolumeCopyDoesNotVote", InTurn, Alongside, 3, 100, ofData + " leases"},
	{"TestScaleDownIsRevertedInEveryPhase", InTurn, Alongside, 7, 100, ofScale},
	{"TestScaleUpIsRevertedInEveryPhase", InTurn, Alongside, 7, 90, ofScale},
	{"TestQuotaFollowsVolumes", InTurn, Alongside, 5, 70, ofVolumes},
	{"TestLeasesEditedToNonsenseOrderNothing", InTurn, Alongside, 3, 70, "agent druid leases"},
	{"TestStatefulSetMovesInUnderAWriter", InTurn, Alongside, 6, 90, ofMoving},
	{"TestStatefulSetWithTLSMovesIn", InTurn, Alongside, 6, 110, ofMoving + " agent/transport agent/certificates manifests"},
	{"TestDeletedJoinedClusterLeavesOthers", InTurn, Alongside, 6, 65, ofMoving},
	{"TestTwoFaultsInTheMiddleOfAChangeOfScale", InTurn, Alongside, 7, 65, ofScale},
	{"TestMembersThatCatchUpDisturbNoQuorum", InTurn, Alongside, 7, 60, ofScale},
	{"TestNamedMembersReplacedFirst", InTurn, Alongside, 6, 60, ofScale},
	{"TestVolumeOfReplacedMemberKept", InTurn, Alongside, 4, 80, ofScale + " internal/plugin"},
	{"TestHelmWaitsUntilTheClusterIsReady", InTurn, Alongside, 3, 150, "druid druid/policy manifests"},
	{"TestKubectlPluginOperatesCluster", InTurn, Alongside, 3, 170, "internal/plugin internal/view"},
	{"TestStoriesOnIPv6", InTurn, Alone, 12, 180, "agent agent/config agent/transport druid manifests membership"},
	{"TestFiveStatesAreShown", InTurn, Alongside, 3, 430, "internal/plugin internal/view internal/webui"},
	{"TestClientsReachServices", InTurn, Alongside, 3, 60, "druid manifests"},
	{"TestScaleCommandOfChangedPods", InTurn, Alongside, 5, 110, ofScale + " manifests"},
	{"TestPodReturnsDespiteRefusedRole", InTurn, Alongside, 5, 55, "druid druid/policy manifests"},
	{"TestNamesRemovedByUserReturn", InTurn, Alongside, 5, 15, "druid druid/policy leases"},
	{"TestPageOfALostNodeIsTrue", InTurn, Alone, 3, 170, ofNodes + " druid/policy"},
	{"TestPagesOfRescueAreTrue", InTurn, Alongside, 3, 150, ofData + " druid/policy leases"},
	{"TestPagesOfFailingBackupsAreTrue", InTurn, Alongside, 3, 180, ofBackups + " druid druid/policy"},
	{"TestTutorialOfBackupAndRestoreIsTrue", InTurn, Alongside, 6, 50, ofRestore},
	{"TestTutorialOfTheFirstClusterIsTrue", InTurn, Alongside, 5, 45, ofForming + " " + ofScale},
	{"TestTutorialOfALostDiskIsTrue", InTurn, Alongside, 5, 25, ofData},
	{"TestNoexecAgentVolumeIsReported", InTurn, Alongside, 1, 50, ofPods},
	{"TestNamespaceIsDeletedUnderAWriter", InTurn, Alongside, 3, 40, ofEnds},
	{"TestBootstrapProblemsRepaired", InTurn, Alongside, 8, 90, "druid manifests leases"},
	{"TestUngrowableVolumeReportedOnly", InTurn, Alongside, 3, 30, ofVolumes},

	{"TestFaultsThatOverlapBreakNoPromise", Soak, Alone, 7, 360,
		ofNodes + " " + ofData + " " + ofPods + " " + ofUpgrades + " " + ofTLS + " " + ofRecovery + " " + ofDruid},
	{"TestDruidCrashDuringScaleChange", Soak, Alone, 7, 100, ofDruid},
	{"TestRestoreToDrawnMoments", Soak, Alongside, 4, 220, ofRecovery + " " + ofRestore},
	{"TestGrowAtMountLeaderLast", Soak, Alongside, 5, 200, ofVolumes},
}
